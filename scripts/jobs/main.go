// Command jobs holds the small MPI programs that the scripts run: jobs NAME [flags].
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/mpigo/mpigo/comm"
)

// program is the body of one rank. args follow the program's name.
type program func(world *comm.Comm, args []string) error

func programs() map[string]program {
	return map[string]program{
		"bytes":     exchangeBytes,
		"large":     sendLarge,
		"endless":   endless,
		"finalize":  finalizeLate,
		"idle":      idle,
		"init-time": initTime,
		"mismatch":  mismatch,
	}
}

func main() {
	if len(os.Args) < 2 || programs()[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "usage: jobs bytes|large|endless|finalize|idle|init-time|mismatch [flags]")
		os.Exit(2)
	}
	comm.Run(func(world *comm.Comm) error { return programs()[os.Args[1]](world, os.Args[2:]) })
}

// endless passes messages round the ranks until the job is ended from outside. Each rank prints its
// process ID after the first rounds.
func endless(world *comm.Comm, _ []string) error {
	const printAfter = 10 // messages
	buf := make([]byte, 100_000)
	right := (world.Rank() + 1) % world.Size()
	left := (world.Rank() + world.Size() - 1) % world.Size()
	for i := 0; ; i++ {
		if i == printAfter {
			fmt.Printf("rank %d pid %d\n", world.Rank(), os.Getpid())
		}
		message := buf[:1+i*7919%len(buf)] // of any length
		if _, err := comm.SendrecvReplace(world, message, right, 0, left, 0); err != nil {
			return err
		}
	}
}

// initTime prints when this rank has returned from Init, in microseconds of the system's clock.
func initTime(*comm.Comm, []string) error {
	_, err := fmt.Println(time.Now().UnixMicro())
	return err
}
