package coll

import (
	"context"
	"encoding/binary"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/comm/internal/area"
	"github.com/mpigo/mpigo/internal/calls"
)

// ageEvery is the number of collectives or starts between calls of Age for an area. Ranks are
// always less than SequenceNumbers of them apart.
const ageEvery = originSpan

// areaState says whether a team has an area.
type areaState uint8

const (
	areaNone areaState = iota // not yet
	areaUsed
	areaOff // no more, or never
)

// SharedMemory is the memory that the ranks of the team share, or nil. It is for tests.
func (t *Team) SharedMemory() []byte {
	if t.area == nil {
		return nil
	}
	return t.area.Mem()
}

// Arrived is how many ranks of the area have come to the first round of this rank's blocking
// collective, or of its next one. It is for tests.
func (t *Team) Arrived() int {
	stamp := area.Stamp(t.sequence.count+1, 0)
	if t.blocking != nil {
		stamp = area.Stamp(t.blocking.count, 0)
	}
	n := 0
	for rank := range t.area.Ranks {
		if t.area.HasCome(rank, stamp) {
			n++
		}
	}
	return n
}

// ShareNothing makes all collectives use messages. All ranks call it, before the first collective.
func (t *Team) ShareNothing() { t.areaState = areaOff }

// StartAt numbers the team's collectives from count on. All ranks call it, and then wait for each
// other by other means, before the first collective. It is for tests.
func (t *Team) StartAt(count uint64) { t.count, t.next = count, int(count%SequenceNumbers) }

// wantsArea reports whether the team sets up an area before the next collective. All ranks that
// make the same call agree on that. Only a call that waits for all ranks anyway may do it: a
// program may rely on other calls not to wait.
func (t *Team) wantsArea(call calls.ID) bool {
	if t.areaState != areaNone || t.size == 1 || call != calls.Barrier && call != calls.Allreduce {
		return false
	}
	tuning := t.Tuning()
	if tuning.SharedBytes <= 0 || t.next < tuning.SharedAfter {
		return false
	}
	t.findHosts()
	return len(t.leaders) < t.size && t.mostLocal <= area.MostRanks
}

// findHosts finds out which ranks are on which host.
func (t *Team) findHosts() {
	if t.leaders == nil {
		t.hosts = hostsOf(t.size, t.rank, t.owner.Host)
	}
}

// Prepare sets up the team's shared memory when it is due. It is called before Begin of each
// collective, with the name, root and context of the call. An error, which is described, ends the
// call; the call then counts as a collective.
//
// The set-up has its own sequence number. The memory is used only if all ranks of all hosts could
// share it, with the same block. No rank completes the set-up unless all ranks take part in it. A
// rank that gives up in the middle is unfit for collectives, or knows by a REVOKE of one that did
// not begin. So either all ranks have the area, or none, or no later collective succeeds.
func (t *Team) Prepare(ctx context.Context, call calls.ID, root int) (err error) {
	if !t.wantsArea(call) || t.unfit != nil || t.blocking != nil || ctx != nil && ctx.Err() != nil {
		return nil
	}
	s := t.Begin(Blocking, call, root)
	if s == nil {
		return nil
	}
	defer func() {
		s.Leave()
		if err != nil { // otherwise the call goes on, also if the communicator was freed meanwhile
			if t.noFurther != 0 {
				t.declineProbes(t.noFurther)
			}
			t.removeIfFreed()
		}
	}()
	s.setUp = true
	s.NoBuffers()
	a, err := s.shareArea(ctx, t.hub.block)
	if a != nil {
		t.area, t.areaState = a, areaUsed
		t.hub.addTeam(t)
	} else if err == nil {
		t.areaState = areaOff
	}
	return err
}

// shareArea runs its own steps on s, which has none, and replaces its Reduction. On each host one
// rank makes memory with a block for each rank, and the others map it. It returns nil if a rank on
// any host could not do so, or has another block.
func (s *Schedule) shareArea(ctx context.Context, block int) (*area.Area, error) {
	t := s.team
	leader, isAlone := t.local[0], len(t.local) == 1
	var sharer btl.Sharer // nil: this rank shares nothing
	if block > 0 && !isAlone {
		sharer = t.p.Sharer(t.ctx, t.local)
	}
	bytes := area.Bytes(len(t.local), block)
	var mem []byte
	before := area.Stamp(s.count, area.MostRound)
	if s.how == Persistent {
		before = area.Stamp(s.starts, area.MostRound)
	}
	if isAlone && block > 0 {
		mem = bytesOfWords(make([]uint64, bytes/wordBytes))
		area.Clear(mem, len(t.local), before)
	}
	const keyBytes = len(btl.Key{})
	offer := s.temp(keyBytes + wordBytes) // the leader's key and block
	able := s.temp(wordBytes)
	clear(offer)
	if t.rank == leader && sharer != nil {
		if made, k, err := sharer.Share(bytes); err == nil {
			mem = made
			area.Clear(mem, len(t.local), before)
			copy(offer, k[:])
			binary.LittleEndian.PutUint64(offer[keyBytes:], uint64(block))
		}
	}
	if t.rank != leader {
		s.recv(leader, offer)
	} else {
		for _, rank := range t.local[1:] {
			s.send(rank, offer)
		}
	}
	s.wait()
	s.callHook(func() {
		if t.rank != leader && sharer != nil && binary.LittleEndian.Uint64(offer[keyBytes:]) == uint64(block) {
			// If it fails, no rank uses the memory.
			mem, _ = sharer.MapShared(t.group.World(leader), btl.Key(offer[:keyBytes]), bytes)
		}
		usable := 0
		if mem != nil {
			usable = block
		}
		binary.LittleEndian.PutUint64(able, setUpWord(usable))
	})
	s.Reduction = Reduction{Op: both{}, Elem: wordBytes, Commutes: true, Returns: true}
	s.allreduceDoubling(s.folding(), nil, able)
	err := s.run(ctx)
	if mem != nil && sharer != nil && t.rank == leader {
		sharer.Hide(mem)
	}
	result := binary.LittleEndian.Uint64(able)
	if err == nil && !isSetUp(result) {
		err = s.explain(&RevokedError{Rank: s.rank, Reason: Differs})
		s.giveUp(err)
	}
	if err == nil && mem != nil && result == setUpWord(block) {
		var world []int
		for _, rank := range t.local {
			world = append(world, t.group.World(rank))
		}
		return area.New(sharer, mem, world, t.number(t.rank), block, before), nil
	}
	if mem != nil && sharer != nil {
		_ = sharer.Unshare(mem) // cannot fail: it was mapped
	}
	return nil, err
}

// setUpWord is a rank's message at the end of a set-up: the block of the memory that it can share,
// which may differ between hosts, or 0. The message of a rank in another call may have the same
// length, and be combined with such words. So the upper half of a word is a hash of the lower one,
// which exposes such a mixture at all ranks.
func setUpWord(block int) uint64 {
	h := uint32(block) ^ 0x7365_7475
	h = (h ^ h>>16) * 0x85eb_ca6b
	h = (h ^ h>>13) * 0xc2b2_ae35
	return uint64(h^h>>16)<<32 | uint64(uint32(block))
}

func isSetUp(word uint64) bool { return word == setUpWord(int(uint32(word))) }

// both combines two such words: to their value if they are equal, else to the word for 0. If one is
// invalid, the result is invalid.
type both struct{}

// Combine implements Combiner.
func (both) Combine(in, inout []byte) {
	v, w := binary.LittleEndian.Uint64(in), binary.LittleEndian.Uint64(inout)
	result := uint64(0)
	switch {
	case !isSetUp(v) || !isSetUp(w):
	case v == w:
		result = v
	default:
		result = setUpWord(0)
	}
	binary.LittleEndian.PutUint64(inout, result)
}

// dropArea unmaps the team's area.
func (t *Team) dropArea() {
	if t.area != nil {
		t.area.Unshare()
		if t.blocking != nil && t.blocking.area == t.area {
			t.blocking.area = nil
		}
		t.area, t.areaState = nil, areaOff
		t.hub.removeTeam(t)
	}
}

// tidyArea unmaps the area if the job ends and no call uses it.
func (t *Team) tidyArea() {
	if t.area != nil && t.hub.closed && (t.blocking == nil || len(t.blocking.meets) == 0) {
		t.dropArea()
	}
}
