package base_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/btl"
	"github.com/mpigo/mpigo/btl/base"
)

type someFields struct {
	A uint16
	B [3]byte
}

type someItem struct{ N uint32 }

// FuzzAddress: what is decoded has one encoding, and is an address of no other transport or
// version. The same content with a right checksum gets as far as the checks of the owner.
func FuzzAddress(f *testing.F) {
	form := base.AddressForm{Transport: "some", Version: 3}
	good := form.Encode(base.AddressOwner{Rank: 1, Size: 2}, &someFields{4, [3]byte{5}}, []someItem{{6}, {7}})
	f.Add(good, 2)
	f.Add(good, 1)
	f.Add(good[1:len(good)-4], 2)
	f.Add([]byte{}, 0)
	f.Fuzz(func(t *testing.T, b []byte, items int) {
		for _, b := range [][]byte{b, form.Seal(b)} {
			var fields someFields
			list := make([]someItem, min(max(items, 0), 100))
			owner, ok := form.Decode(b, &fields, list)
			if !ok {
				continue
			}
			require.Equal(t, b, form.Encode(owner, &fields, list))
			require.Less(t, owner.Rank, owner.Size)
			require.LessOrEqual(t, owner.Size, uint32(base.MaxRanks))
			for _, other := range []base.AddressForm{{Transport: "other", Version: 3}, {Transport: "some", Version: 4}} {
				_, ok := other.Decode(b, &fields, list)
				require.False(t, ok)
			}
		}
	})
}

func TestDecodeDamagedAddressFails(t *testing.T) {
	form := base.AddressForm{Transport: "some", Version: 3}
	fields := someFields{4, [3]byte{5}}
	good := form.Encode(base.AddressOwner{Rank: 1, Size: 2}, &fields)
	require.Len(t, good, form.Bytes(&fields))
	owner, ok := form.Decode(good, &fields)
	require.True(t, ok)
	require.Equal(t, base.AddressOwner{Rank: 1, Size: 2}, owner)
	bad := map[string][]byte{
		"empty": nil, "shorter": good[:len(good)-1], "longer": append(bytes.Clone(good), 0),
		"rank":    form.Encode(base.AddressOwner{Rank: 2, Size: 2}, &fields),
		"size":    form.Encode(base.AddressOwner{Rank: 0, Size: base.MaxRanks + 1}, &fields),
		"version": base.AddressForm{Transport: "some", Version: 2}.Encode(owner, &fields),
		"other":   base.AddressForm{Transport: "other", Version: 3}.Encode(owner, &fields),
	}
	for what, b := range bad {
		_, ok := form.Decode(b, &fields)
		assert.False(t, ok, what)
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 0x10
		_, ok := form.Decode(b, &fields)
		assert.False(t, ok, "byte %d damaged", i)
	}
}

func TestCheckOwnerRejectsOtherRanksAndJobs(t *testing.T) {
	var r base.Module[*endpoint]
	r.Init(nil, nil, btl.Attrs{Name: "some"}, nil)
	ours := base.AddressOwner{Rank: 0, Size: 3}
	require.NoError(t, r.CheckOwner(2, base.AddressOwner{Rank: 2, Size: 3}, true, ours))
	for what, err := range map[string]error{
		"not an address of this kind of rail": r.CheckOwner(2, base.AddressOwner{}, false, ours),
		"address of rank 1 for rank 2":        r.CheckOwner(2, base.AddressOwner{Rank: 1, Size: 3}, true, ours),
		"address of rank 3 for rank 3":        r.CheckOwner(3, base.AddressOwner{Rank: 3, Size: 4}, true, ours),
		"address of rank 2 for rank -1":       r.CheckOwner(-1, base.AddressOwner{Rank: 2, Size: 3}, true, ours),
	} {
		require.ErrorIs(t, err, btl.ErrUnreachable, what)
		require.ErrorContains(t, err, what)
	}
	var wrong *btl.Error
	require.ErrorAs(t, r.CheckOwner(2, base.AddressOwner{Rank: 2, Size: 4}, true, ours), &wrong)
	require.Equal(t, btl.ClassUsage, wrong.Class)
	require.ErrorContains(t, wrong, "a job of 4 ranks there, of 3 here")
}
