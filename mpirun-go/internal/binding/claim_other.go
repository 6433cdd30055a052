//go:build !linux

package binding

// claimCore never succeeds: this system cannot bind ranks.
func claimCore(int) (claim, bool) { return nil, false }
