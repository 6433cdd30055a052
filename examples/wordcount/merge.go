package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/mpigo/mpigo/comm"
)

// word is a word with its count.
type word struct {
	Text  string
	Count int64
}

// exchange sends the count of each word to the rank that owns the word. It returns the words that
// this rank owns, with the sums of all ranks' counts.
func exchange(world *comm.Comm, counted map[string]int64) (map[string]int64, error) {
	n := world.Size()
	parts := make([][]byte, n) // by owner
	for text, count := range counted {
		o := owner(text, n)
		parts[o] = appendWord(parts[o], word{text, count})
	}

	// The ranks exchange the lengths of their messages first, then the messages.
	outBytes, inBytes := make([]int, n), make([]int, n)
	for r, p := range parts {
		outBytes[r] = len(p)
	}
	if err := comm.Alltoall(world, outBytes, inBytes); err != nil {
		return nil, err
	}
	in := make([][]byte, n)
	sends, recvs := make([]comm.Request, n), make([]comm.Request, n)
	for r := range n {
		var err error
		in[r] = make([]byte, inBytes[r])
		if recvs[r], err = comm.Irecv(world, in[r], r, tagPart); err != nil {
			return nil, err
		}
	}
	for r := range n {
		var err error
		if sends[r], err = comm.Isend(world, parts[r], r, tagPart); err != nil {
			return nil, err
		}
	}

	// Each message is added up while later ones are still on their way.
	owned := make(map[string]int64)
	for r, st := range comm.Completed(context.Background(), recvs...) {
		if st.Err != nil {
			return nil, st.Err
		}
		if err := addWords(owned, in[r]); err != nil {
			return nil, fmt.Errorf("words from rank %d: %w", r, err)
		}
	}
	return owned, comm.WaitAll(sends...)
}

// addWords adds the counts of encoded words to words.
func addWords(words map[string]int64, encoded []byte) error {
	for len(encoded) > 0 {
		w, rest, err := cutWord(encoded)
		if err != nil {
			return err
		}
		words[w.Text] += w.Count
		encoded = rest
	}
	return nil
}

// owner returns the rank, out of n, that adds up the counts of a word.
func owner(text string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(text))
	return int(h.Sum32() % uint32(n))
}

// appendWord encodes a word as its count, its length and its bytes.
func appendWord(b []byte, w word) []byte {
	b = binary.AppendUvarint(b, uint64(w.Count))
	b = binary.AppendUvarint(b, uint64(len(w.Text)))
	return append(b, w.Text...)
}

// cutWord decodes the first word of b and returns the rest.
func cutWord(b []byte) (w word, rest []byte, err error) {
	count, k := binary.Uvarint(b)
	if k <= 0 {
		return w, nil, errors.New("the count of a word is cut off")
	}
	b = b[k:]
	size, k := binary.Uvarint(b)
	if k <= 0 || size > uint64(len(b)-k) {
		return w, nil, errors.New("a word is cut off")
	}
	b = b[k:]
	return word{string(b[:size]), int64(count)}, b[size:], nil
}

// collectTop returns the k most frequent words of all ranks' words, at rank 0.
func collectTop(world *comm.Comm, owned map[string]int64, k int) ([]word, error) {
	best := make([]word, 0, len(owned))
	for text, count := range owned {
		best = append(best, word{text, count})
	}
	best = top(best, k)
	if world.Rank() != 0 {
		// Strings hold pointers, so the words travel as a Go value.
		return nil, comm.SendValue(world, best, 0, tagWords)
	}
	for range world.Size() - 1 {
		more, _, err := comm.RecvValue[[]word](world, comm.AnySource, tagWords)
		if err != nil {
			return nil, err
		}
		best = top(append(best, more...), k)
	}
	return best, nil
}

// top sorts words by falling count, words of equal count alphabetically, and keeps the first k.
func top(words []word, k int) []word {
	slices.SortFunc(words, func(a, b word) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Text, b.Text))
	})
	return words[:min(k, len(words))]
}
