// Package cli parses mpirun-go's command line into a Command. It looks only at the words of the
// command line. Its callers check whether programs, hosts and directories exist.
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

// Errors of Parse for a command line that asks for no job.
var (
	ErrHelp    = errors.New("help requested")
	ErrVersion = errors.New("version requested")
)

// ErrNoProgram means that the command line has only flags.
var ErrNoProgram = errors.New("no PROGRAM given")

// Values of Command.Stdin besides ranks.
const (
	StdinAll  = -1
	StdinNone = -2
)

// DebugAll is the value of Command.DebugRank for all ranks.
const DebugAll = -1

// Command is a parsed command line.
type Command struct {
	Groups []Group // at least one

	Hosts          string // value of --host
	Hostfile       string
	MapBy          slots.Policy
	Launcher       string        // ssh, slurm or local; "" if --launcher is absent
	Agent          []string      // words of --agent; nil if it is absent
	ConnectTimeout time.Duration // --connect-timeout
	Settings       []Setting     // --set, --btl and --verbose, in order
	Tags           string        // --tags, for building programs
	BindTo         BindTo
	ReportBindings bool // --report-bindings or --verbose
	Oversubscribe  bool

	TagOutput       bool
	TimestampOutput bool
	OutputDir       string
	Profile         string        // --profile DIR
	CPUProfile      string        // --cpuprofile DIR
	Trace           string        // --trace DIR
	Stdin           int           // a rank, StdinAll or StdinNone
	Timeout         time.Duration // 0: no limit
	KillAfter       time.Duration // --kill-after; 0: the defaults
	HangAfter       time.Duration // --hang-after; 0: no reports about hangs
	ReportDir       string        // --report-dir
	Metrics         string        // --metrics; "": none

	Debug     bool // mpirun-go dlv
	DebugRank int  // --rank of mpirun-go dlv: a rank, or DebugAll
}

// BindTo is the value of --bind-to.
type BindTo uint8

const (
	BindAuto BindTo = iota // to an equal share of the host's free cores, if they suffice
	BindCore               // to a core each, starting over when all are taken
	BindNone
)

// Group is one PROGRAM and the ranks that run it.
type Group struct {
	Ranks   int // 0: SetHostCount sets it
	Program string
	Args    []string // without the program's name
	Env     []Var    // -x, in order
	Dir     string   // --wdir
}

// Var is one -x flag.
type Var struct {
	Name, Value  string
	FromLauncher bool // -x NAME: take the launcher's value
}

// Setting is one --set, --btl or --verbose.
type Setting struct{ Key, Value string }

// Size returns the number of ranks of all groups.
func (c *Command) Size() int {
	size := 0
	for _, g := range c.Groups {
		size += g.Ranks
	}
	return size
}

// MaxRanks is the largest size of a job. It protects the machine from a mistyped number.
const MaxRanks = 1 << 16

// defaultHangAfter is the default of --hang-after. It is long, because many programs compute for
// minutes between two calls.
const defaultHangAfter = 5 * time.Minute

// maxConnectTimeout is the largest --connect-timeout. A user would not wait longer for a host.
const maxConnectTimeout = time.Hour

// Parse parses the words after the command's name. The word ":" separates programs, and each
// program has flags of its own before it. Error messages have one line. Parse returns ErrHelp and
// ErrVersion unwrapped.
func Parse(args []string) (*Command, error) { return parseLine(args, false) }

// ParseDebug parses the words after mpirun-go dlv: those of Parse, and --rank.
func ParseDebug(args []string) (*Command, error) { return parseLine(args, true) }

func parseLine(args []string, debug bool) (*Command, error) {
	cmd, err := parse(args, debug)
	if err != nil && strings.ContainsFunc(err.Error(), unicode.IsControl) {
		// The error quotes the user's words, which may have line ends.
		err = errors.New(strings.Map(replaceControl, err.Error()))
	}
	return cmd, err
}

// replaceControl replaces control characters, so that an error stays on one line.
func replaceControl(c rune) rune {
	if unicode.IsControl(c) {
		return '?'
	}
	return c
}

func parse(args []string, debug bool) (*Command, error) {
	cmd := &Command{ConnectTimeout: 30 * time.Second, HangAfter: defaultHangAfter, Debug: debug}
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

// SetHostCount sets a number of ranks that the command line leaves open: with --map-by ppr:N:node
// and no -n, each host has N ranks.
func (c *Command) SetHostCount(hosts int) error {
	if c.Groups[0].Ranks == 0 {
		c.Groups[0].Ranks = c.MapBy.PerNode * hosts
	}
	return c.checkSize()
}

func (c *Command) checkSize() error {
	if size := c.Size(); size > MaxRanks {
		return fmt.Errorf("%d ranks: a job has at most %d", size, MaxRanks)
	}
	if c.Stdin >= c.Size() {
		return fmt.Errorf("--stdin %d: the job has no such rank, only 0 to %d", c.Stdin, c.Size()-1)
	}
	if c.DebugRank >= c.Size() {
		return fmt.Errorf("--rank %d: the job has no such rank, only 0 to %d", c.DebugRank, c.Size()-1)
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

// parseGroup parses one group's flags and returns the words after them.
func (c *Command) parseGroup(args []string) (Group, []string, error) {
	var group Group
	flags := flag.NewFlagSet("mpirun-go", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}

	define(flags, parseRanks, &group.Ranks, "n", "np")
	flags.Func("x", "", func(s string) error {
		v, err := parseVar(s)
		group.Env = append(group.Env, v)
		return err
	})
	define(flags, notEmpty, &group.Dir, "wdir")
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

// define defines a flag by some names. Its value is parsed into to.
func define[T any](flags *flag.FlagSet, parse func(string) (T, error), to *T, names ...string) {
	for _, name := range names {
		flags.Func(name, "", func(s string) (err error) {
			*to, err = parse(s)
			return err
		})
	}
}

// jobFlags defines the flags that apply to the whole job.
func (c *Command) jobFlags(flags *flag.FlagSet) {
	define(flags, notEmpty, &c.Hosts, "H", "host")
	define(flags, notEmpty, &c.Hostfile, "hostfile")
	define(flags, slots.ParsePolicy, &c.MapBy, "map-by")
	define(flags, oneOf("ssh", "slurm", "local"), &c.Launcher, "launcher")
	define(flags, splitWords, &c.Agent, "agent")
	define(flags, parseConnectTimeout, &c.ConnectTimeout, "connect-timeout")
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
	define(flags, notEmpty, &c.Tags, "tags")
	define(flags, parseBindTo, &c.BindTo, "bind-to")
	flags.BoolVar(&c.ReportBindings, "report-bindings", false, "")
	flags.BoolVar(&c.Oversubscribe, "oversubscribe", false, "")
	flags.BoolVar(&c.TagOutput, "tag-output", false, "")
	flags.BoolVar(&c.TimestampOutput, "timestamp-output", false, "")
	define(flags, notEmpty, &c.OutputDir, "output-dir")
	define(flags, notEmpty, &c.Profile, "profile")
	define(flags, notEmpty, &c.CPUProfile, "cpuprofile")
	define(flags, notEmpty, &c.Trace, "trace")
	define(flags, parseStdin, &c.Stdin, "stdin")
	define(flags, parseTimeout, &c.Timeout, "timeout")
	define(flags, parseTimeout, &c.KillAfter, "kill-after")
	define(flags, parseHangAfter, &c.HangAfter, "hang-after")
	define(flags, notEmpty, &c.ReportDir, "report-dir")
	define(flags, parseListenAddress, &c.Metrics, "metrics")
	if c.Debug {
		define(flags, parseDebugRank, &c.DebugRank, "rank")
	}
}

// flagError converts an error of package flag to the launcher's wording. parsed holds the words
// that the package has parsed; the last of them is the unknown flag as the user typed it.
func (c *Command) flagError(err error, parsed []string) error {
	if errors.Is(err, flag.ErrHelp) {
		return ErrHelp
	}
	text := err.Error()
	if name, unknown := strings.CutPrefix(text, "flag provided but not defined: -"); unknown {
		if len(c.Groups) > 0 && isJobFlag(name) {
			return fmt.Errorf("%s applies to the whole job: put it before the first PROGRAM", flagName(name))
		}
		typed, _, _ := strings.Cut(parsed[len(parsed)-1], "=")
		if hint := foreignFlagHint(name); hint != "" {
			return fmt.Errorf("no such flag: %s: %s", typed, hint)
		}
		if near := nearestFlag(name); near != "" {
			return fmt.Errorf("no such flag: %s: did you mean %s?", typed, flagName(near))
		}
		return fmt.Errorf("no such flag: %s", typed)
	}
	if name, missing := strings.CutPrefix(text, "flag needs an argument: -"); missing {
		return fmt.Errorf("%s needs a value", flagName(name))
	}
	// The text is: invalid value "x" for flag -n: reason.
	if rest, ok := strings.CutPrefix(text, "invalid value "); ok {
		if value, rest, ok := cutQuoted(rest, " for flag -"); ok {
			name, why, _ := strings.Cut(rest, ": ")
			if unquoted, err := strconv.Unquote(value); err == nil {
				value = unquoted
			}
			return fmt.Errorf("%s %s: %s", flagName(name), value, why)
		}
	}
	return err
}

// cutQuoted is like strings.Cut for an s that begins with a quoted value. It skips sep inside that
// value.
func cutQuoted(s, sep string) (before, after string, found bool) {
	value, err := strconv.QuotedPrefix(s)
	if err != nil {
		return s, "", false
	}
	after, found = strings.CutPrefix(s[len(value):], sep)
	return value, after, found
}

// nearestFlag returns the flag that a misspelt flag probably means, or "". At most one letter in
// three may differ.
func nearestFlag(misspelt string) string {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	(&Command{}).jobFlags(flags)
	names := []string{"wdir", "version", "help"}
	flags.VisitAll(func(f *flag.Flag) { names = append(names, f.Name) })
	return tunable.Nearest(misspelt, names, len(misspelt)/3)
}

func isJobFlag(name string) bool {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	(&Command{}).jobFlags(flags)
	return flags.Lookup(name) != nil
}

// flagName writes a flag as the help does: with one dash before one letter and before np, otherwise
// with two.
func flagName(name string) string {
	if len(name) == 1 || name == "np" {
		return "-" + name
	}
	return "--" + name
}
