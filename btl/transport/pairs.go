package transport

import "slices"

// Pair is a rail of this rank and a rail of a peer that it leads to, by their places in the lists
// of both.
type Pair struct {
	Local, Remote int
	// Extra: one of them has another pair, and this may lead nowhere.
	Extra bool
	// Alternate: both have another pair, which comes first.
	Alternate bool
}

// Pairs says which of a rank's rails lead to which of a peer's. leads is Transport.Leads for their
// places in the lists of both; weAreLower says that the local rank is the lower one, so that both
// ranks find the same pairs.
//
// First come pairs in which each rail is once, as far as possible. Then come pairs for rails that
// have none, because one rank has more rails or a rail leads to few: each gets the one that has the
// fewest pairs. All other pairs are alternates.
func Pairs(locals, remotes int, leads func(local, remote int) int, weAreLower bool) []Pair {
	if !weAreLower {
		pairs := Pairs(remotes, locals, func(a, b int) int { return leads(b, a) }, true)
		for i, p := range pairs {
			pairs[i].Local, pairs[i].Remote = p.Remote, p.Local
		}
		return pairs
	}
	best := 0
	for i := range locals {
		for j := range remotes {
			best = max(best, leads(i, j))
		}
	}
	if best == 0 {
		return nil
	}
	leadsWell := func(i, j int) bool { return leads(i, j) == best }
	var first, alternates []Pair
	ours, theirs := make([]int, locals), make([]int, remotes) // pairs of each
	add := func(i, j int) {
		first = append(first, Pair{Local: i, Remote: j, Extra: ours[i]+theirs[j] > 0})
		ours[i]++
		theirs[j]++
	}
	for i := range locals {
		for j := range remotes {
			if ours[i] == 0 && theirs[j] == 0 && leadsWell(i, j) {
				add(i, j)
			}
		}
	}
	for i := range locals {
		if ours[i] == 0 {
			if j := fewest(theirs, func(j int) bool { return leadsWell(i, j) }); j >= 0 {
				add(i, j)
			}
		}
	}
	for j := range remotes {
		if theirs[j] == 0 {
			if i := fewest(ours, func(i int) bool { return leadsWell(i, j) }); i >= 0 {
				add(i, j)
			}
		}
	}
	for i := range locals {
		for j := range remotes {
			isFirst := slices.ContainsFunc(first, func(p Pair) bool { return p.Local == i && p.Remote == j })
			if leadsWell(i, j) && !isFirst {
				alternates = append(alternates, Pair{Local: i, Remote: j, Alternate: true})
			}
		}
	}
	return append(first, alternates...)
}

// fewest is the place of the smallest number among those that may be taken, −1 if there is none.
func fewest(numbers []int, mayTake func(i int) bool) int {
	best := -1
	for i, n := range numbers {
		if mayTake(i) && (best < 0 || n < numbers[best]) {
			best = i
		}
	}
	return best
}

// Limit keeps at most most of the pairs that two ranks have, given those of each transport, the
// first transport first. Both ranks find the same. It reads only the pairs and their order, which
// are the same at both ends, and no property of a rail that the ends may see differently.
//
// Pairs that are no alternates stay first: each of them is one without which a rail of either rank
// would have none. If these alone are too many, those of the last transports go, and of one
// transport those whose rails come late in the lists of both ranks: it lists first what matters
// most. Then come alternates of the first transport, then those of the next, each time the one
// whose rails have the fewest.
func Limit(lists [][]Pair, most int) [][]Pair {
	kept := make([][]Pair, len(lists))
	left := most
	for t, pairs := range lists {
		var needed []int
		for n, p := range pairs {
			if !p.Alternate {
				needed = append(needed, n)
			}
		}
		slices.SortStableFunc(needed, func(a, b int) int {
			return pairs[a].Local + pairs[a].Remote - pairs[b].Local - pairs[b].Remote
		})
		keep := make([]bool, len(pairs))
		for _, n := range needed[:min(left, len(needed))] {
			keep[n] = true
			left--
		}
		kept[t] = pick(pairs, keep)
	}
	for t, pairs := range lists {
		if len(pairs) == len(kept[t]) {
			continue
		}
		keep := make([]bool, len(pairs))
		locals, remotes := map[int]int{}, map[int]int{} // kept pairs of each rail
		for n, p := range pairs {
			if keep[n] = slices.Contains(kept[t], p); keep[n] {
				locals[p.Local]++
				remotes[p.Remote]++
			}
		}
		uses := make([]int, len(pairs))
		for left > 0 {
			for n, p := range pairs {
				uses[n] = locals[p.Local] + remotes[p.Remote]
			}
			n := fewest(uses, func(n int) bool { return !keep[n] })
			if n < 0 {
				break
			}
			keep[n] = true
			locals[pairs[n].Local]++
			remotes[pairs[n].Remote]++
			left--
		}
		kept[t] = pick(pairs, keep)
	}
	return kept
}

// pick are the pairs that are to be kept.
func pick(pairs []Pair, keep []bool) (list []Pair) {
	for n, p := range pairs {
		if keep[n] {
			list = append(list, p)
		}
	}
	return list
}
