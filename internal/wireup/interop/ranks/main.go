// Ranks uses all of wireup's client and checks the results. scripts/interop.sh and scripts/slurm.sh
// start it under our own and other process managers.
//
//	ranks            the whole life of a job; prints "rank R of N ok"
//	ranks abort      rank 1 (rank 0 of one) aborts with code 7, the others wait in a barrier
//	ranks die        rank 1 (rank 0 of one) exits with code 5 before a barrier
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"

	"github.com/mpigo/mpigo/internal/wireup"
)

func main() {
	c, err := wireup.FromEnv(nil)
	if errors.Is(err, wireup.ErrNoLauncher) {
		fmt.Println("no launcher")
		os.Exit(3)
	}
	if err == nil {
		switch mode(); {
		case mode() == "":
			err = life(c)
		case c.Rank() != min(1, c.Size()-1):
			err = c.Barrier()
		case mode() == "abort":
			if err = c.Abort(wireup.Abort{Code: 7, Message: "as asked for"}); err == nil {
				err = c.Barrier() // cannot complete; waits until the manager kills this process
			}
		case mode() == "die":
			os.Exit(5)
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ranks:", err)
		os.Exit(1)
	}
}

func mode() string {
	if len(os.Args) > 1 {
		return os.Args[1]
	}
	return ""
}

// longValue returns a value of many pieces, which differs from rank to rank and byte to byte.
func longValue(rank int) []byte {
	b := make([]byte, 20_000)
	for i := range b {
		b[i] = byte(i*7 + i/256 + rank)
	}
	return b
}

func longKey(rank int) string {
	return fmt.Sprintf("a-key-of-all-the-forty-eight-bytes-allowed_%05d", rank)
}

func life(c *wireup.Client) error {
	card := func(rank int) wireup.Card {
		address := []byte{0, 10, '=', ' ', ';', byte(rank)}
		return wireup.Card{Host: fmt.Sprint("host", rank), PID: rank, Modules: []wireup.Module{{BTL: "tcp", Address: address}}}
	}
	if err := c.PutCard(card(c.Rank())); err != nil {
		return err
	}
	if err := c.Put(longKey(c.Rank()), longValue(c.Rank())); err != nil {
		return err
	}
	if err := c.Put(fmt.Sprint("empty", c.Rank()), nil); err != nil {
		return err
	}
	if err := c.Barrier(); err != nil {
		return err
	}
	secret, err := c.Secret()
	if err != nil {
		return err
	}
	cards, err := c.GetCards()
	if err != nil {
		return err
	}
	for rank, got := range cards {
		if rank != c.Rank() && !reflect.DeepEqual(got, card(rank)) {
			return fmt.Errorf("card of rank %d is %+v", rank, got)
		}
		long, err := c.Get(longKey(rank))
		if err != nil {
			return err
		}
		if !bytes.Equal(long, longValue(rank)) {
			return fmt.Errorf("long value of rank %d is wrong", rank)
		}
		empty, err := c.Get(fmt.Sprint("empty", rank))
		if err != nil {
			return err
		}
		if len(empty) != 0 {
			return fmt.Errorf("empty value of rank %d is %q", rank, empty)
		}
	}
	if _, err := c.Get("never-put"); !errors.Is(err, wireup.ErrNotFound) {
		return fmt.Errorf("get of a key that was never put: %w", err)
	}
	// The secret must be the same at all ranks.
	if err := c.Put(fmt.Sprint("secret", c.Rank()), secret); err != nil {
		return err
	}
	if err := c.Barrier(); err != nil {
		return err
	}
	for rank := range c.Size() {
		other, err := c.Get(fmt.Sprint("secret", rank))
		if err != nil {
			return err
		}
		if !bytes.Equal(secret, other) {
			return fmt.Errorf("secret of rank %d differs", rank)
		}
	}
	nodeOf, err := c.NodeOf()
	if err != nil {
		return err
	}
	for range 20 {
		if err := c.Barrier(); err != nil {
			return err
		}
	}
	fmt.Printf("rank %d of %d ok, nodes %v\n", c.Rank(), c.Size(), nodeOf)
	return c.Finalize()
}
