package pml

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

// Memory for remote access has to be registered with each rail that is to reach it. What the user
// has allocated for that purpose is registered once for each kind of access, when a rail first needs
// that; any other buffer as far and as long as the request that it belongs to needs it, since
// memory that the garbage collector has taken back must not stay registered.

// block is memory that AddMemory has made known.
type block struct {
	base, end uintptr
	mem       []byte
	regions   []blockRegion
}

// blockRegion is the whole block, registered with a module for one kind of access: whoever may read a
// message there must not be able to write.
type blockRegion struct {
	module btl.Registrar
	access btl.Access
	region btl.Region
}

// AddMemory makes known that mem stays where it is until RemoveMemory, and so can be registered for
// longer than one message. It is not empty.
func (p *PML) AddMemory(mem []byte) {
	base := uintptr(unsafe.Pointer(unsafe.SliceData(mem)))
	b := &block{base: base, end: base + uintptr(len(mem)), mem: mem}
	i, _ := slices.BinarySearchFunc(p.blocks, base, func(b *block, at uintptr) int { return compare(b.base, at) })
	p.blocks = slices.Insert(p.blocks, i, b)
}

// RemoveMemory takes AddMemory back: the memory is not reachable any more when it returns. No
// active request uses it.
func (p *PML) RemoveMemory(mem []byte) {
	i := p.blockAt(uintptr(unsafe.Pointer(unsafe.SliceData(mem))))
	if i < 0 {
		return
	}
	for _, r := range p.blocks[i].regions {
		_ = r.region.Release() // it was registered, so there is nothing to go wrong
	}
	p.blocks = slices.Delete(p.blocks, i, i+1)
}

func compare(a, b uintptr) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// blockAt is the index of the block that holds an address, or −1.
func (p *PML) blockAt(at uintptr) int {
	i, exact := slices.BinarySearchFunc(p.blocks, at, func(b *block, at uintptr) int { return compare(b.base, at) })
	if !exact {
		i--
	}
	if i < 0 || at >= p.blocks[i].end {
		return -1
	}
	return i
}

// errUnregistered says that a rail could not register a buffer after all.
var errUnregistered = errors.New("memory cannot be registered any more")

// registration is a buffer's regions, one for each rail of a peer in a set.
type registration struct {
	peer    *peer
	access  btl.Access
	bytes   int     // of the buffer
	asked   railSet // of these rails
	set     railSet // that have it
	regions [maxRails]btl.Region
	offset  [maxRails]uint64 // of the buffer in the region
	own     railSet          // the regions that are to be released
	revoked int              // PML.revoked when it was made
}

// register makes buf reachable on those of a peer's rails, of a set, that can. A registration
// that is kept from an earlier transfer of the same buffer is taken as it is if it fits.
func (p *PML) register(g *registration, pr *peer, set railSet, buf []byte, access btl.Access) {
	if g.set != 0 && g.peer == pr && g.access == access && g.bytes == len(buf) && g.asked == set && (g.own == g.set || g.revoked == p.revoked) {
		return
	}
	g.release()
	g.peer, g.access, g.bytes, g.asked, g.revoked = pr, access, len(buf), set, p.revoked
	rails := pr.rails
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buf)))
	var b *block
	if i := p.blockAt(at); i >= 0 && at+uintptr(len(buf)) <= p.blocks[i].end {
		b = p.blocks[i]
	}
	for i := range rails {
		if !set.has(i) {
			continue
		}
		if b != nil {
			if region := b.regionOn(&rails[i], access); region != nil {
				g.set |= 1 << i
				g.regions[i], g.offset[i] = region, uint64(at-b.base)
				continue
			}
		}
		region, err := rails[i].registrar.Register(buf, access)
		if err != nil {
			if !errors.Is(err, btl.ErrMemory) {
				p.stats.Unregistered++
			}
			continue
		}
		g.set |= 1 << i
		g.own |= 1 << i
		g.regions[i], g.offset[i] = region, 0
	}
}

// regionOn is the block's region on a rail's module for an access, made if need be; nil if that cannot be.
func (b *block) regionOn(rl *rail, access btl.Access) btl.Region {
	for _, r := range b.regions {
		if r.module == rl.registrar && r.access == access {
			return r.region
		}
	}
	region, err := rl.registrar.Register(b.mem, access)
	if err != nil {
		return nil
	}
	b.regions = append(b.regions, blockRegion{rl.registrar, access, region})
	return region
}

// release gives the registration up: nothing reaches the buffer by it any more.
func (g *registration) release() {
	if g.set == 0 {
		return
	}
	for i := range g.regions {
		if g.own.has(i) {
			_ = g.regions[i].Release() // as for RemoveMemory
		}
	}
	*g = registration{}
}

// revoke is release, and takes the regions that are of a block from that too: they are made anew
// when they are needed. Others who are about to use them find them gone, and move the message in
// fragments.
func (p *PML) revoke(g *registration) {
	for _, b := range p.blocks {
		b.regions = slices.DeleteFunc(b.regions, func(r blockRegion) bool {
			if !slices.Contains(g.regions[:], r.region) {
				return false
			}
			_ = r.region.Release() // as for RemoveMemory
			p.revoked++
			return true
		})
	}
	g.release()
}

// expose appends the exposures of a registration.
func (g *registration) expose(to []byte, rails []rail) []byte {
	for i := range rails {
		if !g.set.has(i) {
			continue
		}
		x := exposure{rail: rails[i].local, offset: g.offset[i], key: g.regions[i].Key()}
		n := len(to)
		to = slices.Grow(to, exposureBytes)[:n+exposureBytes]
		clear(to[n:])
		x.encode(to[n:])
	}
	return to
}

// remotes is where a peer's buffer is, by rail.
type remotes struct {
	set    railSet
	key    [maxRails]btl.Key
	offset [maxRails]uint64
}

// decode reads a list of exposures of pr's. Those of rails that are not in the set are left out.
func (t *remotes) decode(pr *peer, list []byte, usable railSet) {
	t.set = 0
	for ; len(list) >= exposureBytes; list = list[exposureBytes:] {
		var x exposure
		x.decode(list)
		i := pr.numbered(x.rail)
		if i < 0 || !usable.has(i) {
			continue
		}
		t.set |= 1 << i
		t.key[i], t.offset[i] = x.key, x.offset
	}
}
