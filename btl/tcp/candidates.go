package tcp

import (
	"fmt"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sys/unix"
)

// candidate is an address that a machine has.
type candidate struct {
	index    int
	name     string
	addr     netip.Addr
	bits     int
	up       bool
	loopback bool
	// unfit says why the address should not be used although the machine has it; "" if it may be
	// used.
	unfit string
}

// candidates returns the addresses of this machine.
func candidates() ([]candidate, error) {
	list, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network interfaces: %w", err)
	}
	unfit := unfitAddresses()
	var found []candidate
	for _, i := range list {
		addrs, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of interface %s: %w", i.Name, err)
		}
		for _, a := range addrs {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue // not an IP address
			}
			addr := prefix.Addr().Unmap()
			found = append(found, candidate{
				i.Index, i.Name, addr, prefix.Bits(), i.Flags&net.FlagUp != 0, i.Flags&net.FlagLoopback != 0, unfit[addressOn{i.Index, addr}],
			})
		}
	}
	return found, nil
}

// addressOn is an address of an interface.
type addressOn struct {
	index int
	addr  netip.Addr
}

// unfitAddresses returns the IPv6 addresses that no new connection should use, with the reason (RFC
// 4862, RFC 8981). It is empty if the system does not say.
func unfitAddresses() map[addressOn]string {
	unfit := map[addressOn]string{}
	_ = eachAddress(unix.AF_INET6, func(index int, flags byte, addr netip.Addr) {
		for _, f := range [...]struct {
			flag byte
			why  string
		}{
			{unix.IFA_F_DADFAILED, "another machine has it"},
			{unix.IFA_F_TENTATIVE, "not usable yet"},
			{unix.IFA_F_DEPRECATED, "deprecated"},
			{unix.IFA_F_TEMPORARY, "temporary"},
		} {
			// An optimistic address can be used at once.
			if flags&f.flag != 0 && !(f.flag == unix.IFA_F_TENTATIVE && flags&unix.IFA_F_OPTIMISTIC != 0) {
				unfit[addressOn{index, addr}] = f.why
				break
			}
		}
	})
	return unfit
}

// sortCandidates sorts by interface, IPv4 first.
func sortCandidates(found []candidate) {
	slices.SortStableFunc(found, func(a, b candidate) int {
		switch {
		case a.index != b.index:
			return a.index - b.index
		case a.addr.Is4() != b.addr.Is4():
			if a.addr.Is4() {
				return -1
			}
			return 1
		}
		return a.addr.Compare(b.addr)
	})
}
