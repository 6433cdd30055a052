package comm_test

import (
	"fmt"

	"github.com/mpigo/mpigo/comm"
)

// The number of ranks.
func ExampleGroup_Size() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Size(), all.Size())
		}
		return nil
	})
	// Output: 3 6
}

// The place of a rank of the world in the group.
func ExampleGroup_Rank() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Rank(4), even.Rank(1) == comm.Undefined)
		}
		return nil
	})
	// Output: 2 true
}

// The members, as ranks of the world.
func ExampleGroup_Ranks() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Ranks())
		}
		return nil
	})
	// Output: [0 2 4]
}

// The members of one group, then those that only the other one has.
func ExampleGroup_Union() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		low, err := all.Incl(0, 1, 2)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Union(low).Ranks())
		}
		return nil
	})
	// Output: [0 2 4 1]
}

// The members of both, in the order of the first group.
func ExampleGroup_Intersection() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		low, err := all.Incl(0, 1, 2)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Intersection(low).Ranks())
		}
		return nil
	})
	// Output: [0 2]
}

// The members of the first group that the other one has not.
func ExampleGroup_Difference() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(all.Difference(even).Ranks())
		}
		return nil
	})
	// Output: [1 3 5]
}

// A group of some members, in the order of the list.
func ExampleGroup_Incl() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			last, err := even.Incl(2, 1) // ranks in the group
			fmt.Println(last.Ranks(), err)
		}
		return nil
	})
	// Output: [4 2] <nil>
}

// A group without some members.
func ExampleGroup_Excl() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			rest, err := even.Excl(0)
			fmt.Println(rest.Ranks(), err)
		}
		return nil
	})
	// Output: [2 4] <nil>
}

// The places of ranks of one group in another one.
func ExampleGroup_Translate() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		low, err := all.Incl(0, 1, 2)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Translate([]int{0, 1}, low))
		}
		return nil
	})
	// Output: [0 2]
}

// Groups may have the same members in another order.
func ExampleGroup_Compare() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		low, err := all.Incl(0, 1, 2)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			turned, err := even.Incl(2, 1, 0)
			fmt.Println(even.Compare(turned), even.Compare(low), err)
		}
		return nil
	})
	// Output: similar unequal <nil>
}

// A comparison prints as its name.
func ExampleComparison_String() {
	_ = comm.RunLocal(6, func(world *comm.Comm) error {
		all := world.Group()
		even, err := all.Incl(0, 2, 4)
		if err != nil {
			return err
		}
		if world.Rank() == 0 {
			fmt.Println(even.Compare(even).String())
		}
		return nil
	})
	// Output: ident
}
