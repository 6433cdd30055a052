// Start says when this rank was through Init, in microseconds of the system's clock.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/mpigo/mpigo/comm"
)

func main() {
	comm.Run(func(*comm.Comm) error {
		_, err := fmt.Fprintln(os.Stdout, time.Now().UnixMicro())
		return err
	})
}
