package main

import (
	"bytes"
	"context"
	"fmt"
	"go/scanner"
	"go/token"
	"io"
	"os"

	"golang.org/x/sync/errgroup"

	"github.com/mpigo/mpigo/comm"
)

// totals sums up what was counted.
type totals struct {
	Files, Lines, Bytes, Words, Distinct int64
}

const totalsLen = 5

// slice and totalsOf convert totals into numbers that a reduction can add, and back.
func (t totals) slice() []int64 { return []int64{t.Files, t.Lines, t.Bytes, t.Words, t.Distinct} }

func totalsOf(s []int64) totals { return totals{s[0], s[1], s[2], s[3], s[4]} }

// countAll counts the files of all spans on all ranks, and returns what this rank has counted. Rank
// 0 deals out the spans in a goroutine and counts like the others. If one of the two goroutines
// fails, the context ends the calls of the other.
func countAll(world *comm.Comm, spans []span, paths []string, progress io.Writer) (map[string]int64, totals, error) {
	group, ctx := errgroup.WithContext(context.Background())
	view := world.WithContext(ctx)
	if world.Rank() == 0 {
		group.Go(func() error { return deal(view, spans, len(paths), progress) })
	}
	words := make(map[string]int64)
	var sum totals
	group.Go(func() error { return work(ctx, view, paths, words, &sum) })
	return words, sum, group.Wait()
}

// deal sends the next span to each rank that asks, and an empty span when no more are left.
func deal(c *comm.Comm, spans []span, files int, progress io.Writer) error {
	tenths := int64(0) // reported so far
	for idle := 0; idle < c.Size(); {
		st, err := comm.Recv(c, []byte{}, comm.AnySource, tagAsk)
		if err != nil {
			return err
		}
		next := make([]span, 1)
		if len(spans) > 0 {
			next[0], spans = spans[0], spans[1:]
		} else {
			idle++
		}
		if err := comm.Send(c, next, st.Source, tagSpan); err != nil {
			return err
		}
		if t := 10 * next[0].End / int64(files); progress != nil && t > tenths {
			tenths = t
			fmt.Fprintf(progress, "wordcount: %3d %% of %d files\n", 10*tenths, files)
		}
	}
	return nil
}

// work counts spans until no more are left. It asks for the next span before it counts the present
// one, so the next one has arrived when it is needed.
func work(ctx context.Context, c *comm.Comm, paths []string, words map[string]int64, sum *totals) error {
	next := make([]span, 1)
	ask := func() (comm.Request, error) {
		coming, err := comm.Irecv(c, next, 0, tagSpan)
		if err != nil {
			return coming, err
		}
		return coming, comm.Send(c, []byte{}, 0, tagAsk)
	}
	coming, err := ask()
	for {
		if err != nil {
			return err
		}
		if _, err := coming.WaitContext(ctx); err != nil {
			return err
		}
		now := next[0]
		if now.First == now.End {
			return nil
		}
		coming, err = ask()
		for _, path := range paths[now.First:now.End] {
			if err := countFile(path, words, sum); err != nil {
				return err
			}
		}
	}
}

// countFile adds the identifiers of one file to words.
func countFile(path string, words map[string]int64, sum *totals) error {
	src, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	sum.Files++
	sum.Bytes += int64(len(src))
	sum.Lines += int64(bytes.Count(src, []byte{'\n'}))

	// Without an error handler the scanner skips text that is not Go.
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile(path, -1, len(src)), src, nil, 0)
	for {
		_, tok, text := s.Scan()
		switch tok {
		case token.EOF:
			return nil
		case token.IDENT:
			words[text]++
			sum.Words++
		}
	}
}
