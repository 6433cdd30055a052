// Package cli reads mpirun-go's command line into a Command. It looks at
// nothing but the words it is given: whether programs, hosts and directories
// exist is for others to say.
package cli

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/mpigo/mpigo/internal/tunable"
	"github.com/mpigo/mpigo/mpirun-go/internal/slots"
)

// What the command line asks for, if it is not a job.
var (
	ErrHelp    = errors.New("help is wanted")
	ErrVersion = errors.New("the version is wanted")
)

// ErrNoProgram: there are flags only.
var ErrNoProgram = errors.New("no PROGRAM given")

// Values of Command.Stdin that are not a rank.
const (
	StdinAll  = -1
	StdinNone = -2
)

// Command is a whole command line.
type Command struct {
	Groups []Group // at least one

	Hosts          string // as given to --host
	Hostfile       string
	MapBy          slots.Policy
	Launcher       string        // ssh, slurm or local; "": not said
	Agent          []string      // --agent, as words; nil: not said
	ConnectTimeout time.Duration // --connect-timeout
	Settings       []Setting     // --set, --btl and --verbose, in order
	Tags           string        // --tags: for building programs
	BindToCore     bool
	Oversubscribe  bool

	TagOutput       bool
	TimestampOutput bool
	OutputDir       string
	Stdin           int           // a rank, StdinAll or StdinNone
	Timeout         time.Duration // 0: none
}

// Group is one PROGRAM and the ranks that run it.
type Group struct {
	Ranks   int // 0: as many as the hosts make it (FillHosts)
	Program string
	Args    []string // without the program's name
	Env     []Var    // -x, in order
	Dir     string   // --wdir
}

// Var is one -x.
type Var struct {
	Name, Value  string
	FromLauncher bool // -x NAME: the launcher's own value is wanted
}

// Setting is one --set, or a --btl.
type Setting struct{ Key, Value string }

// Size is the number of ranks of all groups.
func (c *Command) Size() int {
	size := 0
	for _, g := range c.Groups {
		size += g.Ranks
	}
	return size
}

// MaxRanks bounds the size of a job, so that a slip of the keyboard does not
// fill the machine.
const MaxRanks = 1 << 16

// maxConnectLimit bounds --connect-timeout: a host that takes longer is as good as lost.
const maxConnectTimeout = time.Hour

// Parse reads the words after the command's name. Programs are separated by ":",
// and each has flags of its own before it. Errors are one line; ErrHelp and
// ErrVersion are given back as they are.
func Parse(args []string) (*Command, error) {
	cmd, err := parse(args)
	if err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
		// What the user wrote is quoted in it.
		err = errors.New(strings.Map(replaceControl, err.Error()))
	}
	return cmd, err
}

// visible keeps an error on its line.
func replaceControl(c rune) rune {
	if unicode.IsControl(c) {
		return '?'
	}
	return c
}

func parse(args []string) (*Command, error) {
	cmd := &Command{ConnectTimeout: 30 * time.Second}
	for {
		group, rest, err := cmd.parseGroup(args)
		if err != nil {
			return nil, err
		}
		end := slices.Index(rest, ":")
		if end < 0 {
			end = len(rest)
		}
		if end == 0 {
			return nil, missingProgram(len(cmd.Groups), len(rest) > 0)
		}
		group.Program, group.Args = rest[0], rest[1:end]
		cmd.Groups = append(cmd.Groups, group)
		if end == len(rest) {
			break
		}
		args = rest[end+1:]
	}
	if len(cmd.Groups) == 1 && cmd.Groups[0].Ranks == 0 && cmd.MapBy.PerNode > 0 {
		return cmd, nil
	}
	for i := range cmd.Groups {
		cmd.Groups[i].Ranks = max(1, cmd.Groups[i].Ranks)
	}
	if err := cmd.checkSize(); err != nil {
		return nil, err
	}
	return cmd, nil
}

// FillHosts makes of a number of ranks that was left open, with --map-by ppr:N:node, N for each of so many hosts.
func (c *Command) SetHostCount(hosts int) error {
	if c.Groups[0].Ranks == 0 {
		c.Groups[0].Ranks = c.MapBy.PerNode * hosts
	}
	return c.checkSize()
}

func (c *Command) checkSize() error {
	if size := c.Size(); size > MaxRanks {
		return fmt.Errorf("%d ranks are more than the %d that a job may have", size, MaxRanks)
	}
	if c.Stdin >= c.Size() {
		return fmt.Errorf("--stdin %d: there is no such rank among the job's %d", c.Stdin, c.Size())
	}
	return nil
}

func missingProgram(groups int, colon bool) error {
	switch {
	case groups > 0:
		return errors.New("no PROGRAM after ':'")
	case colon:
		return errors.New("no PROGRAM before ':'")
	}
	return ErrNoProgram
}

// parseGroup reads one group's flags and returns what follows them.
func (c *Command) parseGroup(args []string) (Group, []string, error) {
	var group Group
	flags := flag.NewFlagSet("mpirun-go", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}

	for _, name := range []string{"n", "np"} {
		flags.Func(name, "", func(s string) error { return parseRanks(s, &group.Ranks) })
	}
	flags.Func("x", "", func(s string) error {
		v, err := parseVar(s)
		group.Env = append(group.Env, v)
		return err
	})
	flags.Func("wdir", "", func(s string) error {
		group.Dir = s
		return notEmpty(s)
	})
	help, version := false, len(args) == 1 && args[0] == "-v"
	if len(c.Groups) == 0 {
		c.jobFlags(flags)
		flags.BoolVar(&version, "version", version, "")
		for _, name := range []string{"h", "help"} {
			flags.BoolVar(&help, name, false, "")
		}
	}

	err := flags.Parse(args)
	switch {
	case err != nil:
		return Group{}, nil, c.flagError(err, args[:len(args)-flags.NArg()])
	case help:
		return Group{}, nil, ErrHelp
	case version:
		return Group{}, nil, ErrVersion
	}
	return group, flags.Args(), nil
}

// jobFlags defines the flags that hold for the whole job.
func (c *Command) jobFlags(flags *flag.FlagSet) {
	for _, name := range []string{"H", "host"} {
		flags.Func(name, "", func(s string) error {
			c.Hosts = s
			return notEmpty(s)
		})
	}
	flags.Func("hostfile", "", func(s string) error {
		c.Hostfile = s
		return notEmpty(s)
	})
	flags.Func("map-by", "", func(s string) (err error) {
		c.MapBy, err = slots.ParsePolicy(s)
		return err
	})
	flags.Func("launcher", "", func(s string) error {
		c.Launcher = s
		return oneOf(s, "ssh", "slurm", "local")
	})
	flags.Func("agent", "", func(s string) (err error) {
		c.Agent, err = splitWords(s)
		return err
	})
	flags.Func("connect-timeout", "", func(s string) (err error) {
		c.ConnectTimeout, err = parseTimeout(s)
		if err == nil && c.ConnectTimeout > maxConnectTimeout {
			err = fmt.Errorf("want at most %v", maxConnectTimeout)
		}
		return err
	})
	flags.Func("btl", "", func(s string) error {
		c.Settings = append(c.Settings, Setting{"btl", s})
		_, err := tunable.Set{}.With("btl", s, tunable.FromCommandLine)
		return err
	})
	flags.Func("set", "", func(s string) error {
		setting, err := ParseSetting(s)
		c.Settings = append(c.Settings, setting)
		return err
	})
	for _, name := range []string{"v", "verbose"} {
		flags.BoolFunc(name, "", func(s string) error {
			on, err := strconv.ParseBool(s)
			c.Settings = append(c.Settings, Setting{"verbose", strconv.FormatBool(on)})
			return err
		})
	}
	flags.Func("tags", "", func(s string) error {
		c.Tags = s
		return notEmpty(s)
	})
	flags.Func("bind-to", "", func(s string) error {
		c.BindToCore = s == "core"
		return oneOf(s, "core", "none")
	})
	flags.BoolVar(&c.Oversubscribe, "oversubscribe", false, "")
	flags.BoolVar(&c.TagOutput, "tag-output", false, "")
	flags.BoolVar(&c.TimestampOutput, "timestamp-output", false, "")
	flags.Func("output-dir", "", func(s string) error {
		c.OutputDir = s
		return notEmpty(s)
	})
	flags.Func("stdin", "", func(s string) (err error) {
		c.Stdin, err = parseStdin(s)
		return err
	})
	flags.Func("timeout", "", func(s string) (err error) {
		c.Timeout, err = parseTimeout(s)
		return err
	})
}

// explain words the flag package's errors as the rest of mpirun-go's. taken are the
// words that it has read: a flag that there is not is the last of them, as it was typed.
func (c *Command) flagError(err error, parsed []string) error {
	if errors.Is(err, flag.ErrHelp) {
		return ErrHelp
	}
	text := err.Error()
	if name, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		if len(c.Groups) > 0 && isJobFlag(name) {
			return fmt.Errorf("%s holds for the whole job: it goes before the first PROGRAM", flagName(name))
		}
		typed, _, _ := strings.Cut(parsed[len(parsed)-1], "=")
		return fmt.Errorf("no such flag: %s", typed)
	}
	if name, missing := strings.CutPrefix(text, "flag needs an argument: -"); missing {
		return fmt.Errorf("%s needs a value", flagName(name))
	}
	// invalid value "x" for flag -n: why
	if rest, ok := strings.CutPrefix(text, "invalid value "); ok {
		if value, rest, ok := cutLast(rest, " for flag -"); ok {
			name, why, _ := strings.Cut(rest, ": ")
			if unquoted, err := strconv.Unquote(value); err == nil {
				value = unquoted
			}
			return fmt.Errorf("%s %s: %s", flagName(name), value, why)
		}
	}
	return err
}

// cutLast is strings.Cut, save that what stands in quotes before sep may hold
// sep too: it cuts where the quoted value ends.
func cutLast(s, sep string) (before, after string, found bool) {
	value, err := strconv.QuotedPrefix(s)
	if err != nil {
		return s, "", false
	}
	after, found = strings.CutPrefix(s[len(value):], sep)
	return value, after, found
}

func isJobFlag(name string) bool {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	(&Command{}).jobFlags(flags)
	return flags.Lookup(name) != nil
}

// dashed writes a flag as the help does: one dash before one letter and -np.
func flagName(name string) string {
	if len(name) == 1 || name == "np" {
		return "-" + name
	}
	return "--" + name
}
