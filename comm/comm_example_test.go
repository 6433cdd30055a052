package comm_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/mpigo/mpigo/comm"
)

// Ranks count from 0.
func ExampleComm_Rank() {
	_ = comm.RunLocal(3, func(world *comm.Comm) error {
		if world.Rank() == world.Size()-1 {
			fmt.Println("the last rank is", world.Rank())
		}
		return nil
	})
	// Output: the last rank is 2
}

// The number of ranks of a communicator.
func ExampleComm_Size() {
	_ = comm.RunLocal(4, func(world *comm.Comm) error {
		half, err := world.Split(world.Rank()%2, 0)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(world.Size(), half.Size())
		}
		return half.Free()
	})
	// Output: 4 2
}

// Errors and reports name the communicator.
func ExampleComm_Name() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		dup, err := world.Dup()
		if err != nil {
			return err
		}
		fmt.Println(world.Name(), dup.Name())
		return dup.Free()
	})
	// Output: world world/dup
}

// A name that says what a communicator is for helps in errors.
func ExampleComm_SetName() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		dup, err := world.Dup()
		if err != nil {
			return err
		}
		dup.SetName("solver")
		fmt.Println(dup.Name())
		return dup.Free()
	})
	// Output: solver
}

// Tags are 0 to TagUB.
func ExampleComm_TagUB() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		err := comm.Send(world, []int{1}, 0, world.TagUB()+1)
		fmt.Println(world.TagUB() >= 1<<15-1, errors.Is(err, comm.ErrTag))
		return nil
	})
	// Output: true true
}

// A communicator that is not needed any more is freed by all of its ranks.
func ExampleComm_Free() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		half, err := world.Split(world.Rank(), 0)
		if err != nil {
			return err
		}
		if err := half.Free(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(errors.Is(half.Barrier(), comm.ErrComm))
		}
		return nil
	})
	// Output: true
}

// RunLocal runs ranks as goroutines, for tests and experiments. It returns the errors of all ranks.
func ExampleRunLocal() {
	results := make([]int, 3)
	err := comm.RunLocal(3, func(world *comm.Comm) error {
		me := world.Rank()
		return comm.Scan(world, []int{me + 1}, results[me:me+1], comm.Sum)
	})
	fmt.Println(results, err)
	// Output: [1 3 6] <nil>
}

// Rank 0 reports a mistake, and every rank gets the error. A program passes os.Args[1:].
func ExampleParseFlags() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		fs := flag.NewFlagSet("program", flag.ContinueOnError)
		fs.SetOutput(os.Stdout) // instead of standard error
		steps := fs.Int("steps", 10, "number of `steps`")
		positive := func() error {
			if *steps <= 0 {
				return fmt.Errorf("-steps is %d: it must be positive", *steps)
			}
			return nil
		}
		return comm.ParseFlags(world, fs, []string{"-steps", "0"}, positive)
	})
	// Output:
	// -steps is 0: it must be positive
	// Usage of program:
	//   -steps steps
	//     	number of steps (default 10)
}

// Operations wait for five seconds at most for a rail that delivers.
func ExampleWithGrace() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			return comm.Send(world, []int{1}, 1, 0)
		}
		buf := []int{0}
		_, err := comm.Recv(world, buf, 0, 0)
		fmt.Println(buf[0])
		return err
	}, comm.WithGrace(5*time.Second))
	// Output: 1
}

// Two rails lead to the other rank.
func ExampleComm_Rails() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if err := world.Barrier(); err != nil {
			return err
		}
		if world.Rank() == 0 {
			for _, rail := range world.Rails() {
				fmt.Println("to rank", rail.Peer, rail.State)
			}
		}
		return world.Barrier()
	}, comm.WithRails(2))
	// Output:
	// to rank 1 up
	// to rank 1 up
}

// A rail that was cut comes back when it is mended. Messages go by the other one meanwhile.
func ExampleComm_MendRail() {
	_ = comm.RunLocal(2, func(world *comm.Comm) error {
		if world.Rank() == 0 {
			if err := errors.Join(world.CutRail(0), world.MendRail(0)); err != nil {
				return err
			}
		}
		out := []int{0}
		err := comm.Allreduce(world, []int{1}, out, comm.Sum)
		if world.Rank() == 0 {
			fmt.Println(out[0])
		}
		return err
	}, comm.WithRails(2), comm.WithSetting("pml.notices", "false"))
	// Output: 2
}

// Memory from Alloc is freed when no call uses it any more.
func ExampleFreeAlloc() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		buf, err := comm.Alloc[float64](world, 1000)
		if err != nil {
			return err
		}
		buf[999] = 1
		fmt.Println(len(buf))
		return comm.FreeAlloc(world, buf)
	})
	// Output: 1000
}

// A library keeps its counter with each communicator. A duplicate begins at 0.
func ExampleNewAttrKey() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		key := comm.NewAttrKey(func(int) (int, bool) { return 0, true })
		if err := comm.SetAttr(world, key, 3); err != nil {
			return err
		}
		dup, err := world.Dup()
		if err != nil {
			return err
		}
		fmt.Println(comm.GetAttr(dup, key))
		return dup.Free()
	})
	// Output: 0 true
}

// A communicator without the attribute gives the zero value.
func ExampleGetAttr() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		key := comm.NewAttrKey[string](nil)
		fmt.Println(comm.GetAttr(world, key))
		if err := comm.SetAttr(world, key, "blue"); err != nil {
			return err
		}
		fmt.Println(comm.GetAttr(world, key))
		return nil
	})
	// Output:
	//  false
	// blue true
}

// An attribute that was deleted is not there any more.
func ExampleDelAttr() {
	_ = comm.RunLocal(1, func(world *comm.Comm) error {
		key := comm.NewAttrKey[int](nil)
		if err := errors.Join(comm.SetAttr(world, key, 1), comm.DelAttr(world, key)); err != nil {
			return err
		}
		_, ok := comm.GetAttr(world, key)
		fmt.Println(ok)
		return nil
	})
	// Output: false
}
