package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mpigo/mpigo/comm"
	"github.com/mpigo/mpigo/internal/wireup"
	"github.com/mpigo/mpigo/mpirun-go/internal/trace/tracetest"
)

// rankMain is the program that the scripts run as ranks: "rank VERB ARG... , VERB ...". It runs the
// verbs in turn; "@R" before a verb means that only rank R runs it.
func rankMain() {
	me := os.Getenv("MPIGO_RANK")
	for _, words := range splitWords(os.Args[1:], ",") {
		verb := words[0]
		if rank, only := strings.CutPrefix(verb, "@"); only {
			if rank != me {
				continue
			}
			words = words[1:]
			verb = words[0]
		}
		runVerb(verb, words[1:], me)
	}
}

func splitWords(words []string, separator string) (verbs [][]string) {
	var verb []string
	for _, w := range append(words, separator) {
		if w != separator {
			verb = append(verb, w)
			continue
		}
		verbs = append(verbs, verb)
		verb = nil
	}
	return verbs
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "rank:", err)
		os.Exit(99)
	}
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	check(err)
	return n
}

// pmi is this process's PMI connection after the verb "join".
var pmi *wireup.Client

func runVerb(verb string, args []string, me string) {
	switch verb {
	case "echo": // prints its arguments, with % replaced by the rank
		fmt.Println(strings.ReplaceAll(strings.Join(args, " "), "%", me))
	case "echoerr":
		fmt.Fprintln(os.Stderr, strings.ReplaceAll(strings.Join(args, " "), "%", me))
	case "print": // the same without a newline
		fmt.Print(strings.ReplaceAll(strings.Join(args, " "), "%", me))
	case "env": // prints NAME=value for each name
		for _, name := range args {
			value, ok := os.LookupEnv(name)
			if !ok {
				value = "(unset)"
			}
			fmt.Printf("%s=%s\n", name, value)
		}
	case "pwd":
		dir, err := os.Getwd()
		check(err)
		fmt.Println(dir)
	case "exit":
		os.Exit(number(args[0]))
	case "die": // kills itself with a signal
		signal.Reset()
		check(syscall.Kill(os.Getpid(), unix.SignalNum("SIG"+args[0])))
		select {}
	case "ready": // writes its process ID to FILE.rank
		// Another rank may wait for the file and then end the job, so it must not be empty.
		check(os.WriteFile(args[0]+"."+me+".new", fmt.Appendln(nil, os.Getpid()), 0o666))
		check(os.Rename(args[0]+"."+me+".new", args[0]+"."+me))
	case "parent": // writes its parent's process ID to FILE.rank
		check(os.WriteFile(args[0]+"."+me, fmt.Appendln(nil, os.Getppid()), 0o666))
	case "spin": // runs forever
		for n := 0; ; n++ {
		}
	case "wait": // sleeps forever
		for {
			time.Sleep(time.Hour)
		}
	case "waitfor": // waits until FILE exists
		for {
			if _, err := os.Stat(args[0]); err == nil {
				return
			}
			time.Sleep(time.Millisecond)
		}
	case "cat":
		_, err := io.Copy(os.Stdout, os.Stdin)
		check(err)
	case "lines": // writes N lines of BYTES bytes, each with two writes
		w := bytes.Repeat([]byte(me), number(args[1]))
		for range number(args[0]) {
			_, _ = os.Stdout.Write(w[:len(w)/2])
			_, _ = os.Stdout.Write(append(w[len(w)/2:], '\n'))
		}
	case "checklines": // checks that the input has N lines of BYTES equal bytes each
		checkLines(number(args[0]), number(args[1]))
	case "await":
		// FILE SIGNAL...: waits for each signal in turn, and then creates FILE.rank.SIGNAL.
		await(args[0]+"."+me, args[1:])
	case "head": // copies the first N lines of the input
		lines := bufio.NewReader(os.Stdin)
		for range number(args[0]) {
			line, err := lines.ReadString('\n')
			check(err)
			fmt.Print("head: ", line)
		}
	case "ignore":
		signal.Ignore(unix.SignalNum("SIG" + args[0]))
	case "cpus": // prints the number and the list of its processors
		var set unix.CPUSet
		check(unix.SchedGetaffinity(0, &set))
		var cpus []string
		for cpu := range 1024 {
			if set.IsSet(cpu) {
				cpus = append(cpus, strconv.Itoa(cpu))
			}
		}
		fmt.Printf("%d of %s\n", runtime.NumCPU(), strings.Join(cpus, ","))
	case "spawn", "daemon", "keep":
		// Leaves a process in its group; in a new session; in a new session with the outputs open.
		spawn(verb, args[0])
	case "join":
		c, err := wireup.FromEnv(os.Getenv)
		check(err)
		pmi = c
	case "barrier":
		check(pmi.Barrier())
	case "leave":
		check(pmi.Finalize())
	case "abort": // CODE MESSAGE
		check(pmi.Abort(wireup.Abort{Code: number(args[0]), Message: strings.Join(args[1:], " ")}))
		time.Sleep(time.Hour)
	case "late": // rank 1 receives from rank 0, which is late by MILLIS
		check(late(time.Duration(number(args[0])) * time.Millisecond))
	case "checktrace": // reads FILE, and prints how many messages and other things it has
		f, err := os.Open(args[0])
		check(err)
		trace, err := tracetest.Read(f)
		check(err)
		fmt.Println("messages:", len(trace.Flows), "rails:", len(trace.Rails), "processes:", len(trace.Names))
	case "world":
		// Uses the library: the last rank runs VERB ARG... after Init, the others wait in a
		// barrier.
		runWorld(args, me)
	case "meet":
		// Uses the library: the last rank runs VERB ARG... [+ VERB...] after Init, and then joins
		// the others in a barrier.
		comm.Run(func(world *comm.Comm) error {
			if world.Rank() == world.Size()-1 {
				for _, words := range splitWords(args, "+") {
					runVerb(words[0], words[1:], me)
				}
			}
			return world.Barrier()
		})
	case "sum": // uses the library: adds in all ranks, with an operation that panics at RANK
		comm.Run(func(world *comm.Comm) error {
			add := func(in, inout []int) {
				if strconv.Itoa(world.Rank()) == args[0] {
					panic("no sum")
				}
				inout[0] += in[0]
			}
			return comm.Allreduce(world, []int{1}, []int{0}, add)
		})
	case "exchange": // exchanges a value of each rank
		check(pmi.Put("value-"+me, []byte("of "+me)))
		check(pmi.Barrier())
		for rank := range pmi.Size() {
			v, err := pmi.Get(fmt.Sprintf("value-%d", rank))
			check(err)
			fmt.Printf("%s got %q\n", me, v)
		}
	case "attributes": // asks for them as MPICH's client does
		conn := os.NewFile(uintptr(number(os.Getenv(wireup.EnvFD))), "PMI")
		_, err := conn.WriteString("cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_appnum\ncmd=get_universe_size\ncmd=finalize\n")
		check(err)
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Println(me, lines.Text())
		}
	default:
		check(fmt.Errorf("unknown verb %q", verb))
	}
}

func runWorld(args []string, me string) {
	comm.Run(func(world *comm.Comm) error {
		if world.Rank() < world.Size()-1 {
			return world.Barrier()
		}
		if args[0] == "fail" {
			return errors.New("failed on request")
		}
		runVerb(args[0], args[1:], me)
		return nil
	})
}

func checkLines(wantLines, wantBytes int) {
	lines := bufio.NewReader(os.Stdin)
	n := 0
	for ; ; n++ {
		line, err := lines.ReadString('\n')
		if err == io.EOF && line == "" {
			break
		}
		check(err)
		body := strings.TrimSuffix(line, "\n")
		if len(body) != wantBytes || strings.Count(body, body[:1]) != wantBytes {
			check(fmt.Errorf("line %d does not have %d equal bytes: %d bytes, %.40q", n, wantBytes, len(body), body))
		}
	}
	if n != wantLines {
		check(fmt.Errorf("%d lines, want %d", n, wantLines))
	}
}

func await(file string, names []string) {
	got := make(chan os.Signal, 1)
	for _, name := range names {
		signal.Notify(got, unix.SignalNum("SIG"+name))
	}
	check(os.WriteFile(file, fmt.Appendln(nil, os.Getpid()), 0o666))
	for _, name := range names {
		if sig := <-got; sig != unix.SignalNum("SIG"+name) {
			check(fmt.Errorf("got %v, want %s", sig, name))
		}
		check(os.WriteFile(file+"."+name, []byte("received\n"), 0o666))
	}
	fmt.Println("got", strings.Join(names, " "))
}

// spawn starts a process that sleeps forever, and writes its process ID to FILE.
func spawn(verb, file string) {
	me, err := os.Executable()
	check(err)
	cmd := exec.Command(me, "ignore", "TERM", ",", "wait")
	cmd.Args[0] = "rank"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: verb != "spawn"}
	if verb == "keep" {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	check(cmd.Start())
	check(os.WriteFile(file, fmt.Appendln(nil, cmd.Process.Pid), 0o666))
}

// late is a job of 2 ranks in which a message comes late.
func late(by time.Duration) error {
	w, err := comm.Init()
	if err != nil {
		return err
	}
	buf := make([]byte, 100_000)
	if w.Rank() == 0 {
		time.Sleep(by)
		err = comm.Send(w, buf, 1, 5)
	} else {
		_, err = comm.Recv(w, buf, 0, 5)
	}
	return errors.Join(err, w.Finalize())
}
