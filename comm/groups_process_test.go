package comm_test

import (
	"errors"
	"fmt"
	"slices"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/request"
)

// groupsProgram makes communicators of groups and with topologies between processes.
func groupsProgram(w *comm.Comm) error {
	n, me := w.Size(), w.Rank()
	uses := func(c *comm.Comm, world ...int) {
		expect(world, c.Group().Ranks())
		all := make([]int, len(world))
		check(comm.Allgather(c, []int{me}, all))
		expect(world, all)
		long, in := pattern(1<<18, me), make([]byte, 1<<18)
		next, prev := (c.Rank()+1)%c.Size(), (c.Rank()+c.Size()-1)%c.Size()
		st := must(must(comm.Isendrecv(c, long, next, 1, in, prev, 1)).Wait())
		expect(request.Status{Source: prev, Tag: 1, Count: len(in), Bytes: int64(len(in))}, st)
		if !slices.Equal(pattern(len(in), world[prev]), in) {
			failf("a message of rank %d arrived changed", prev)
		}
		check(c.Free())
	}
	back := make([]int, n)
	for r := range back {
		back[r] = n - 1 - r
	}
	for range 20 {
		uses(must(w.Create(must(w.Group().Incl(back...)))), back...)
	}
	host := must(w.SplitBy(comm.SplitNode, -me))
	uses(host, back...)
	// Pairs, and then all ranks, without the other ranks.
	pair := []int{me / 2 * 2}
	if pair[0]+1 < n {
		pair = append(pair, pair[0]+1)
	}
	for i := range 50 {
		uses(must(w.CreateGroup(must(w.Group().Incl(pair...)), i%2)), pair...)
	}
	uses(must(w.CreateGroup(must(w.Group().Incl(back...)), w.TagUB())), back...)
	dims := []int{0, 0}
	check(comm.Dims(n, dims))
	cart := must(w.Cart(dims, []bool{true, false}))
	for dim := range dims {
		source, dest := must2(cart.CartShift(dim, 1))
		in := []int{-1}
		must(comm.Sendrecv(cart, []int{me}, dest, 2, in, source, 2))
		expect(max(source, -1), in[0], "cart")
	}
	row := must(cart.CartSub(false, true))
	expect(dims[1], row.Size(), "row")
	graph := must(w.DistGraph(map[int][]int{me: {(me + 1) % n}, (me + 1) % n: {me}}))
	sources, dests := graph.Neighbors()
	expect(min(2*n, 4), len(sources)+len(dests), "neighbours") // each edge is named twice
	expect(sources, dests)
	if me == 0 {
		fmt.Println("groups done")
	}
	return errors.Join(cart.Free(), row.Free(), graph.Free())
}
