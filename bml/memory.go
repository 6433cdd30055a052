package bml

import (
	"errors"
	"slices"

	"github.com/mpigo/mpigo/btl"
)

// Remote access needs memory that is registered with each rail. Memory from AddMemory is registered
// once for each kind of access, when a rail first needs it. Any other buffer is registered only
// while its request needs it, because memory that the garbage collector has taken back must not
// stay registered (M2).

// AddMemory says that mem, which is not empty, stays where it is until RemoveMemory. So it can be
// registered for longer than one message.
func (b *BML) AddMemory(mem []byte) { b.pinned.Add(mem) }

// RemoveMemory undoes AddMemory: when it returns, no peer can reach the memory any more. No active
// request may use the memory.
func (b *BML) RemoveMemory(mem []byte) { b.pinned.Remove(mem) }

// ErrUnregistered says that a rail can no longer register a buffer.
var ErrUnregistered = errors.New("memory can no longer be registered")

// Registration is a buffer's regions, one for each rail of a peer in a set.
type Registration struct {
	peer    *Peer
	access  btl.Access
	bytes   int     // of the buffer
	asked   RailSet // the rails asked for a region
	set     RailSet // the rails that have one
	regions [maxRails]btl.Region
	offset  [maxRails]uint64 // of the buffer in the region
	own     RailSet          // the regions that are to be released
	revoked int              // pinned.Memory.Revoked when it was made
}

// register registers buf on those rails of a set that can reach it. It keeps a registration from an
// earlier transfer of the same buffer if that fits.
func (b *BML) register(g *Registration, pr *Peer, set RailSet, buf []byte, access btl.Access) {
	isSame := g.peer == pr && g.access == access && g.bytes == len(buf) && g.asked == set
	if g.set != 0 && isSame && (g.own == g.set || g.revoked == b.pinned.Revoked()) {
		return
	}
	g.Release()
	g.peer, g.access, g.bytes, g.asked, g.revoked = pr, access, len(buf), set, b.pinned.Revoked()
	bl, offset := b.pinned.Of(buf)
	for i := range pr.rails {
		if !set.Has(i) {
			continue
		}
		if bl != nil {
			if region := bl.On(pr.rails[i].registrar, access); region != nil {
				g.set |= 1 << i
				g.regions[i], g.offset[i] = region, offset
				continue
			}
		}
		if j := g.sameModule(pr.rails, i); j >= 0 {
			g.set |= 1 << i
			g.regions[i], g.offset[i] = g.regions[j], 0
			continue
		}
		region, err := pr.rails[i].registrar.Register(buf, access)
		if err != nil {
			if !errors.Is(err, btl.ErrMemory) {
				b.stats.Unregistered++
			}
			continue
		}
		g.set |= 1 << i
		g.own |= 1 << i
		g.regions[i], g.offset[i] = region, 0
	}
}

// sameModule is a rail of the set before rail i that has its module, −1 if there is none.
func (g *Registration) sameModule(rails []Rail, i int) int {
	for j := range i {
		if g.set.Has(j) && rails[j].module == rails[i].module {
			return j
		}
	}
	return -1
}

// Release ends a registration: no rail reaches the buffer by it any more.
func (g *Registration) Release() {
	if g.set == 0 {
		return
	}
	for i := range g.regions {
		if g.own.Has(i) {
			_ = g.regions[i].Release() // cannot fail: it was registered
		}
	}
	*g = Registration{}
}

// revoke is Release, and removes regions of a block from the block, too: they are made anew when
// they are needed. Other transfers that are about to use them move their messages in fragments.
func (b *BML) revoke(g *Registration) {
	b.pinned.Revoke(g.regions[:])
	g.Release()
}

// Expose exposes buf to the peer's remote reads or writes, by every suitable rail that is up or may
// come back. It returns the list of remote key descriptors, which is valid until the transfer ends;
// nil if no rail is suitable, or the message moves better in fragments. The caller passes only the
// bytes of the message: a key reaches no farther, except in memory of AddMemory, where it reaches
// the whole block.
func (b *BML) Expose(t *Transfer, buf []byte, access btl.Access) []byte {
	pr := t.peer
	set := pr.exposed(len(buf), access)
	if set == 0 {
		return nil
	}
	b.register(&t.mine, pr, set|pr.returning(access), buf, access)
	if t.mine.set == 0 {
		return nil
	}
	t.keys = t.mine.appendKeys(t.keys[:0], pr.rails)
	return t.keys
}

// Reach prepares to read the memory that the peer's remote key descriptors name into buf, or to
// write buf to it. It reports false if no rail can.
func (b *BML) Reach(t *Transfer, keys []byte, buf []byte, by Access) bool {
	pr := t.peer
	usable := pr.getters
	if by == Write {
		usable = pr.putters
	}
	t.theirs.decode(pr, keys, usable)
	if t.theirs.set == 0 {
		return false
	}
	b.register(&t.mine, pr, t.theirs.set, buf, btl.AccessLocal)
	return t.mine.set&pr.up != 0
}

// returning returns the rails with remote access that have failed and may come back during the
// message.
func (pr *Peer) returning(access btl.Access) (set RailSet) {
	for i := range pr.rails {
		if rl := &pr.rails[i]; rl.state != railUp && rl.recovery.wasUp && !pr.isSpare(rl) {
			set |= 1 << i
		}
	}
	if access == btl.AccessRemoteWrite {
		return set & pr.putters
	}
	return set & pr.getters
}

// Revoke undoes Expose: the peer's reads fail, and it asks for fragments. A buffer that is not
// exposed is released.
func (b *BML) Revoke(t *Transfer) {
	if t.mine.access != btl.AccessLocal {
		b.revoke(&t.mine)
	} else {
		t.mine.Release()
	}
}

// ReleaseLocal releases the buffer of a transfer that does not expose it.
func (t *Transfer) ReleaseLocal() {
	if t.mine.access == btl.AccessLocal {
		t.mine.Release()
	}
}

// MoveBuffer makes a transfer write from another buffer. It returns the registration of the old
// one.
func (b *BML) MoveBuffer(t *Transfer, buf []byte) (old Registration) {
	old, t.mine = t.mine, Registration{}
	b.register(&t.mine, t.peer, t.theirs.set, buf, btl.AccessLocal)
	return old
}

// IsRegistered reports whether a buffer is registered for the transfer.
func (t *Transfer) IsRegistered() bool { return t.mine.set != 0 }

// RebindLocal gives a write that is not posted the registration of the transfer's present buffer.
// It reports false if the write's rail has none.
func (t *Transfer) RebindLocal(op *Op) bool {
	op.Local = t.mine.regions[op.rail]
	return op.Local != nil
}

// appendKeys appends the remote key descriptors of a registration.
func (g *Registration) appendKeys(to []byte, rails []Rail) []byte {
	for i := range rails {
		if !g.set.Has(i) || g.sameModule(rails, i) >= 0 {
			continue
		}
		k := remoteKey{module: rails[i].local, offset: g.offset[i], key: g.regions[i].Key()}
		n := len(to)
		to = slices.Grow(to, remoteKeyBytes)[:n+remoteKeyBytes]
		clear(to[n:])
		k.encode(to[n:])
	}
	return to
}

// remoteKeys are the keys and offsets of a peer's buffer, by rail.
type remoteKeys struct {
	set    RailSet
	key    [maxRails]btl.Key
	offset [maxRails]uint64
}

// decode reads a list of remote key descriptors. It skips rails that are not usable.
func (k *remoteKeys) decode(pr *Peer, list []byte, usable RailSet) {
	k.set = 0
	for ; len(list) >= remoteKeyBytes; list = list[remoteKeyBytes:] {
		var d remoteKey
		d.decode(list)
		for i := range pr.rails {
			if pr.rails[i].remote == d.module && usable.Has(i) {
				k.set |= 1 << i
				k.key[i], k.offset[i] = d.key, d.offset
			}
		}
	}
}
