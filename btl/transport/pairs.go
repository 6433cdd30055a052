package transport

import (
	"cmp"
	"slices"
)

// Pair is a module of this rank and a module of a peer that it leads to. Both are indexes into the
// ranks' lists of modules.
type Pair struct {
	Local, Remote int
	// Extra: one of the two modules has another pair, and this pair may not work.
	Extra bool
	// Alternate: both modules have another pair, which is preferred.
	Alternate bool
	// Level is 0 for the best pairs. Pairs of a higher level are spare while a pair of a lower
	// level is up.
	Level int
}

// Pairs says which modules of a rank lead to which modules of a peer. leads is the result of
// Transport.Leads. weAreLower says that the local rank is the lower one, so that both ranks find
// the same pairs.
//
// First come pairs of level 0 that use each module once, as far as possible. A module may be left
// without a pair, because one rank has more modules, or because the module leads to few others. It
// is then paired with the module that has the fewest pairs. Each further level follows in the same
// way. All other pairs of a level are alternates.
func Pairs(locals, remotes int, leads func(local, remote int) int, weAreLower bool) (pairs []Pair) {
	if !weAreLower {
		pairs := Pairs(remotes, locals, func(a, b int) int { return leads(b, a) }, true)
		for i, p := range pairs {
			pairs[i].Local, pairs[i].Remote = p.Remote, p.Local
		}
		return pairs
	}
	var values []int // of leads, the best first
	for i := range locals {
		for j := range remotes {
			if v := leads(i, j); v > 0 && !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
	}
	slices.SortFunc(values, func(a, b int) int { return b - a })
	for level, value := range values {
		pairs = append(pairs, cover(locals, remotes, level, func(i, j int) bool { return leads(i, j) == value })...)
	}
	first := pairs
	for level, value := range values {
		for i := range locals {
			for j := range remotes {
				isThere := slices.ContainsFunc(first, func(p Pair) bool { return p.Local == i && p.Remote == j })
				if leads(i, j) == value && !isThere {
					pairs = append(pairs, Pair{Local: i, Remote: j, Alternate: true, Level: level})
				}
			}
		}
	}
	return pairs
}

// cover pairs the modules of a level so that each module that leads anywhere has a pair.
func cover(locals, remotes, level int, leads func(local, remote int) bool) (pairs []Pair) {
	ours, theirs := make([]int, locals), make([]int, remotes) // pairs of each
	add := func(i, j int) {
		pairs = append(pairs, Pair{Local: i, Remote: j, Extra: ours[i]+theirs[j] > 0, Level: level})
		ours[i]++
		theirs[j]++
	}
	for i := range locals {
		for j := range remotes {
			if ours[i] == 0 && theirs[j] == 0 && leads(i, j) {
				add(i, j)
			}
		}
	}
	for i := range locals {
		if ours[i] == 0 {
			if j := fewest(theirs, func(j int) bool { return leads(i, j) }); j >= 0 {
				add(i, j)
			}
		}
	}
	for j := range remotes {
		if theirs[j] == 0 {
			if i := fewest(ours, func(i int) bool { return leads(i, j) }); i >= 0 {
				add(i, j)
			}
		}
	}
	return pairs
}

// fewest returns the index of the smallest number among those that may be taken, or −1 if there is
// none.
func fewest(numbers []int, mayTake func(i int) bool) int {
	best := -1
	for i, n := range numbers {
		if mayTake(i) && (best < 0 || n < numbers[best]) {
			best = i
		}
	}
	return best
}

// Limit keeps up to most pairs of two ranks. lists has the pairs of each transport, the first
// transport first. Both ranks find the same pairs, because Limit reads only the pairs and their
// order, which are the same at both ends. It reads no property of a module that the ends may see
// differently.
//
// Limit keeps pairs of level 0 that are not alternates first: without such a pair, a module of
// either rank would have none. Next come the pairs of further levels. If there is no room for all
// of them, pairs of the last transports are dropped. Within a transport, pairs of modules late in
// the ranks' lists are dropped, because a transport lists the most important modules first.
// Alternates come last, in the same order of levels and transports. Each time, the alternate whose
// modules have the fewest pairs is kept.
func Limit(lists [][]Pair, most int) [][]Pair {
	keep := make([][]bool, len(lists))
	for t, pairs := range lists {
		keep[t] = make([]bool, len(pairs))
	}
	left := most
	for _, isSpare := range []bool{false, true} {
		for t, pairs := range lists {
			var wanted []int
			for n, p := range pairs {
				if !p.Alternate && (p.Level > 0) == isSpare {
					wanted = append(wanted, n)
				}
			}
			slices.SortStableFunc(wanted, func(a, b int) int {
				return cmp.Or(pairs[a].Level-pairs[b].Level, pairs[a].Local+pairs[a].Remote-pairs[b].Local-pairs[b].Remote)
			})
			for _, n := range wanted[:min(left, len(wanted))] {
				keep[t][n] = true
				left--
			}
		}
	}
	for _, isSpare := range []bool{false, true} {
		for t, pairs := range lists {
			left -= keepAlternates(pairs, keep[t], isSpare, left)
		}
	}
	kept := make([][]Pair, len(lists))
	for t, pairs := range lists {
		kept[t] = pick(pairs, keep[t])
	}
	return kept
}

// keepAlternates keeps up to most further alternates, of level 0 or of the other levels, and
// returns their number.
func keepAlternates(pairs []Pair, keep []bool, isSpare bool, most int) (n int) {
	locals, remotes := map[int]int{}, map[int]int{} // kept pairs of each module
	for i, p := range pairs {
		if keep[i] {
			locals[p.Local]++
			remotes[p.Remote]++
		}
	}
	uses := make([]int, len(pairs))
	for n < most {
		for i, p := range pairs {
			uses[i] = locals[p.Local] + remotes[p.Remote]
		}
		i := fewest(uses, func(i int) bool { return !keep[i] && (pairs[i].Level > 0) == isSpare })
		if i < 0 {
			break
		}
		keep[i] = true
		locals[pairs[i].Local]++
		remotes[pairs[i].Remote]++
		n++
	}
	return n
}

// pick returns the pairs to keep.
func pick(pairs []Pair, keep []bool) (list []Pair) {
	for n, p := range pairs {
		if keep[n] {
			list = append(list, p)
		}
	}
	return list
}
