// Package pinned registers memory that does not move once for each module and kind of access,
// instead of once for each message. The garbage collector does not know about registrations: they
// must be removed before it frees the memory.
package pinned

import (
	"cmp"
	"slices"
	"unsafe"

	"github.com/mpigo/mpigo/btl"
)

// Memory is what a rank has pinned. The zero value is ready for use. The lock of the rank's
// progress engine guards it.
type Memory struct {
	blocks  []*Block // by address
	revoked int
}

// Block is a slice from Add.
type Block struct {
	base, end uintptr
	mem       []byte
	regions   []region
}

// region is the whole block, registered with a module for one kind of access: a peer that may read
// a message there must not be able to write.
type region struct {
	module btl.Registrar
	access btl.Access
	region btl.Region
}

// Add says that mem does not move or go away until Remove. mem is not empty.
func (m *Memory) Add(mem []byte) {
	base := addressOf(mem)
	i, _ := m.search(base)
	m.blocks = slices.Insert(m.blocks, i, &Block{base: base, end: base + uintptr(len(mem)), mem: mem})
}

// Remove undoes Add. When it returns, no peer can reach the memory any more.
func (m *Memory) Remove(mem []byte) {
	i := m.at(addressOf(mem))
	if i < 0 {
		return
	}
	for _, r := range m.blocks[i].regions {
		_ = r.region.Release() // it was registered, so nothing can go wrong
	}
	m.blocks = slices.Delete(m.blocks, i, i+1)
}

func addressOf(mem []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(mem))) }

func (m *Memory) search(at uintptr) (i int, exact bool) {
	return slices.BinarySearchFunc(m.blocks, at, func(b *Block, at uintptr) int { return cmp.Compare(b.base, at) })
}

// at is the index of the block that holds an address, or −1.
func (m *Memory) at(address uintptr) int {
	i, exact := m.search(address)
	if !exact {
		i--
	}
	if i < 0 || address >= m.blocks[i].end {
		return -1
	}
	return i
}

// Of returns the block that contains buf, and the offset of buf in it. It returns nil if there is
// none.
func (m *Memory) Of(buf []byte) (b *Block, offset uint64) {
	at := addressOf(buf)
	if i := m.at(at); i >= 0 && at+uintptr(len(buf)) <= m.blocks[i].end {
		return m.blocks[i], uint64(at - m.blocks[i].base)
	}
	return nil, 0
}

// On returns the block's region on a module for a kind of access. It registers the block if
// necessary, and returns nil if that fails.
func (b *Block) On(module btl.Registrar, access btl.Access) btl.Region {
	for _, r := range b.regions {
		if r.module == module && r.access == access {
			return r.region
		}
	}
	made, err := module.Register(b.mem, access)
	if err != nil {
		return nil
	}
	b.regions = append(b.regions, region{module, access, made})
	return made
}

// Revoke releases those of the given regions that belong to a block. On registers them again when
// they are needed. Their other users learn of it through Revoked.
func (m *Memory) Revoke(regions []btl.Region) {
	for _, b := range m.blocks {
		b.regions = slices.DeleteFunc(b.regions, func(r region) bool {
			if !slices.Contains(regions, r.region) {
				return false
			}
			_ = r.region.Release() // as for Remove
			m.revoked++
			return true
		})
	}
}

// Revoked counts revoked regions. If the count has changed since a caller got a region from On,
// that region may be gone.
func (m *Memory) Revoked() int { return m.revoked }
