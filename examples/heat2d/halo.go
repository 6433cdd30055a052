package main

import (
	"errors"

	"github.com/mpigo/mpigo/comm"
)

// halo exchanges the edges of a block with the neighbours. Its persistent requests are made once,
// with their buffers and partners, and started before each step.
type halo struct {
	world *comm.Comm
	edges [directions]edge
	reqs  []comm.Request
}

// edge is one side of a block: the cells that the neighbour needs, and the cells of the rim that
// the neighbour's cells go to.
type edge struct {
	neighbour  int
	own, rim   int // index of the first cell
	step       int // distance from one cell to the next
	send, recv []float64
}

// newHalo makes the requests. The caller frees the halo, also after an error.
func newHalo(world *comm.Comm, b *block, neighbours [directions]int) (*halo, error) {
	h := &halo{world: world, edges: [directions]edge{
		north: {own: b.at(0, 0), rim: b.at(-1, 0), step: 1},
		south: {own: b.at(b.rows-1, 0), rim: b.at(b.rows, 0), step: 1},
		west:  {own: b.at(0, 0), rim: b.at(0, -1), step: b.stride},
		east:  {own: b.at(0, b.cols-1), rim: b.at(0, b.cols), step: b.stride},
	}}
	for d := range h.edges {
		e := &h.edges[d]
		e.neighbour = neighbours[d]
		cells := b.cols
		if d == west || d == east {
			cells = b.rows
		}
		// No transport has to copy or to register memory of comm.Alloc.
		var err error
		if e.send, err = comm.Alloc[float64](world, cells); err != nil {
			return h, err
		}
		if e.recv, err = comm.Alloc[float64](world, cells); err != nil {
			return h, err
		}
		// The tag is the direction in which the message travels. A message from the north travels
		// south.
		send, err := comm.SendInit(world, e.send, e.neighbour, d)
		if err != nil {
			return h, err
		}
		h.reqs = append(h.reqs, send)
		recv, err := comm.RecvInit(world, e.recv, e.neighbour, d^1)
		if err != nil {
			return h, err
		}
		h.reqs = append(h.reqs, recv)
	}
	return h, nil
}

// start sends the present edges of b.
func (h *halo) start(b *block) error {
	for d := range h.edges {
		e := &h.edges[d]
		for i := range e.send {
			e.send[i] = b.now[e.own+i*e.step]
		}
	}
	return comm.StartAll(h.reqs...)
}

// finish waits for the neighbours' edges and copies them into the rim of b.
func (h *halo) finish(b *block) error {
	if err := comm.WaitAll(h.reqs...); err != nil {
		return err
	}
	for d := range h.edges {
		e := &h.edges[d]
		if e.neighbour == comm.ProcNull {
			continue // the outside of the plate stays cold
		}
		for i := range e.recv {
			b.now[e.rim+i*e.step] = e.recv[i]
		}
	}
	return nil
}

// free frees the requests and then their buffers.
func (h *halo) free() error {
	var errs []error
	for _, r := range h.reqs {
		errs = append(errs, r.Free())
	}
	for d := range h.edges {
		for _, buf := range [][]float64{h.edges[d].send, h.edges[d].recv} {
			if buf != nil {
				errs = append(errs, comm.FreeAlloc(h.world, buf))
			}
		}
	}
	return errors.Join(errs...)
}
