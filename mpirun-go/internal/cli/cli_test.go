package cli_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/mpigo/mpigo/mpirun-go/internal/slots"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
)

func TestParseSetsEveryFlag(t *testing.T) {
	cmd, err := cli.Parse(strings.Fields(
		"-n 3 -x A=1 -x B --wdir /tmp -H localhost:4 --hostfile hosts --btl sm,self --set stats=1 --set stats=0 --tags a,b " +
			"--bind-to core --oversubscribe --tag-output --timestamp-output --output-dir out --stdin all --timeout 90s --hang-after 0s --report-dir reports prog -n x"))
	require.NoError(t, err)
	assert.Equal(t, &cli.Command{
		Groups: []cli.Group{{
			Ranks: 3, Program: "prog", Args: []string{"-n", "x"}, Dir: "/tmp",
			Env: []cli.Var{{Name: "A", Value: "1"}, {Name: "B", FromLauncher: true}},
		}},
		Hosts: "localhost:4", Hostfile: "hosts",
		Settings: []cli.Setting{{Key: "btl", Value: "sm,self"}, {Key: "stats", Value: "1"}, {Key: "stats", Value: "0"}},
		Tags:     "a,b",
		BindTo:   cli.BindCore, Oversubscribe: true, TagOutput: true, TimestampOutput: true,
		OutputDir: "out", Stdin: cli.StdinAll, Timeout: 90 * time.Second, ConnectTimeout: 30 * time.Second,
		ReportDir: "reports",
	}, cmd)
}

func TestParseDefaultsAndValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		set  func(c *cli.Command) // sets what differs from the defaults
	}{
		{nil, func(*cli.Command) {}},
		// Without a unit, a time is in seconds.
		{[]string{"--timeout", "1.5"}, func(c *cli.Command) { c.Timeout = 1500 * time.Millisecond }},
		{[]string{"--hang-after", "60"}, func(c *cli.Command) { c.HangAfter = time.Minute }},
		{[]string{"--hang-after", "0"}, func(c *cli.Command) { c.HangAfter = 0 }},
		{[]string{"--connect-timeout", "5"}, func(c *cli.Command) { c.ConnectTimeout = 5 * time.Second }},
		{[]string{"--map-by", "ppr:2:node", "-n", "1"}, func(c *cli.Command) { c.MapBy = slots.Policy{PerNode: 2} }},
		{[]string{"--launcher", "slurm"}, func(c *cli.Command) { c.Launcher = "slurm" }},
		{[]string{"--agent", `ssh -F "my config" it\'s ''`}, func(c *cli.Command) {
			c.Agent = []string{"ssh", "-F", "my config", "it's", ""}
		}},
	} {
		want := &cli.Command{
			Groups:         []cli.Group{{Ranks: 1, Program: "prog", Args: []string{}}},
			ConnectTimeout: 30 * time.Second, HangAfter: 5 * time.Minute,
		}
		c.set(want)
		cmd, err := cli.Parse(append(c.args, "prog"))
		require.NoError(t, err, c.args)
		assert.Equal(t, want, cmd, c.args)
	}
}

func TestParseSeveralGroups(t *testing.T) {
	cmd, err := cli.Parse(strings.Fields("-n 2 --stdin 4 a 1 : -np 3 -x K=: b : c ::"))
	require.NoError(t, err)
	require.Len(t, cmd.Groups, 3)
	assert.Equal(t, 6, cmd.Size())
	assert.Equal(t, cli.Group{Ranks: 2, Program: "a", Args: []string{"1"}}, cmd.Groups[0])
	assert.Equal(t, []cli.Var{{Name: "K", Value: ":"}}, cmd.Groups[1].Env)
	assert.Equal(t, cli.Group{Ranks: 1, Program: "c", Args: []string{"::"}}, cmd.Groups[2])
	assert.Equal(t, 4, cmd.Stdin)
}

func TestParseErrorsNameFlagInOneLine(t *testing.T) {
	for args, want := range map[string]string{
		"":                            "no PROGRAM given",
		"-n":                          "-n needs a value",
		"--timeout":                   "--timeout needs a value",
		"-n 1.5 p":                    "-n 1.5: want a number of ranks from 1 to 65536",
		"--np -1 p":                   "-np -1: want a number of ranks from 1 to 65536",
		"-n 40000 p : -n 40000 p":     "80000 ranks: a job has at most 65536",
		"--tag-output=perhaps p":      "invalid boolean value",
		"--bogus p":                   "no such flag: --bogus",
		"-bogus=3 p":                  "no such flag: -bogus",
		"-n2 p":                       "no such flag: -n2",
		"--mca btl tcp p":             "no such flag: --mca: use --set KEY=VALUE, or --btl LIST",
		"-genv A 1 p":                 "no such flag: -genv: use -x NAME=VALUE",
		"-ppn 2 p":                    "no such flag: -ppn: use --map-by ppr:N:node",
		"-npernode 2 p":               "no such flag: -npernode: use --map-by ppr:N:node",
		"-hosts a,b p":                "no such flag: -hosts: use -H HOST,…",
		"-f hosts p":                  "no such flag: -f: use --hostfile FILE",
		"-machinefile hosts p":        "no such flag: -machinefile: use --hostfile FILE",
		"-wd /tmp p":                  "no such flag: -wd: use --wdir DIR",
		"--display-map p":             "no such flag: --display-map: use --report-bindings, which prints the host and the processors of each rank",
		"--rank-by core p":            "no such flag: --rank-by: there is none; --map-by slot or node numbers the ranks, and MPIGO_LOCAL_RANK is a rank's number on its host",
		"--bind-to-none p":            "no such flag: --bind-to-none: use --bind-to none",
		"--grace-period 3s p":         "no such flag: --grace-period: use --kill-after DURATION",
		"--kill-after 0 p":            "--kill-after 0: want a duration such as 30s",
		"--prefix /opt p":             "no such flag: --prefix: not needed, the launcher brings itself and the program to each host",
		"--allow-run-as-root p":       "no such flag: --allow-run-as-root: not needed, root may run jobs",
		"-n 1 a : -n2":                "no such flag: -n2",
		"--hostfil h p":               "no such flag: --hostfil: did you mean --hostfile?",
		"--tag-outptu p":              "no such flag: --tag-outptu: did you mean --tag-output?",
		"-verbos p":                   "no such flag: -verbos: did you mean --verbose?",
		"-rf f p":                     "no such flag: -rf: there is none; the order of hosts in -H or --hostfile, and --map-by, place the ranks",
		"-x MPIGO_TCP_FRAG_BYTES=1 p": "-x MPIGO_TCP_FRAG_BYTES=1: tcp.frag.bytes=\"1\": bad value: want a size such as 4096, 64K or 1M from 256 to 2M",
		"-n 1 p : --btl sm p":         "--btl applies to the whole job: put it before the first PROGRAM",
		"--stdin -1 p":                "--stdin -1: want a rank, all or none",
		"--stdin 1 p":                 "--stdin 1: the job has no such rank, only 0 to 0",
		"--set =1 p":                  "--set =1: want KEY=VALUE",
		"--timeout -3s p":             "--timeout -3s: want a duration",
		"--wdir= p":                   "--wdir : is empty",
		"--tags= p":                   "--tags : is empty",
		"--launcher telnet p":         "--launcher telnet: want ssh or slurm or local",
		"--map-by ppr:x:node p":       "--map-by ppr:x:node: want slot, node or ppr:N:node",
		"--connect-timeout 2h p":      "--connect-timeout 2h: want at most 1h",
		"--agent \"ssh p":             "--agent \"ssh: unclosed quote",
		"--btl for_flag_-n:_,self p":  "--btl for_flag_-n:_,self: ",
		"--btl sm,warp p":             "want a comma-separated list, each once, of self, sm, ibverbs, tcp",
		"--btl self,loop p":           "want a comma-separated list, each once, of self, sm, ibverbs, tcp",
		"-n 65537 p":                  "-n 65537: want a number of ranks from 1 to 65536",
		"-x =value p":                 "-x =value: want NAME or NAME=VALUE",
		"--set stats p":               "--set stats: want KEY=VALUE",
		"--bind-to socket p":          "--bind-to socket: want auto or core or none",
		"--stdin some p":              "--stdin some: want a rank, all or none",
		"--timeout 0 p":               "--timeout 0: want a duration such as 30s",
		"--timeout soon p":            "--timeout soon: want a duration",
		"--connect-timeout 0 p":       "--connect-timeout 0: want a duration",
		"--agent= p":                  "--agent : is empty",
		"-n 1 p : -n 2":               "no PROGRAM after ':'",
		"-n 1 : p":                    "no PROGRAM before ':'",
	} {
		_, err := cli.Parse(strings.Fields(args))
		require.ErrorContains(t, err, want, args)
		assert.NotContains(t, err.Error(), "\n", args)
		if _, flag, ok := strings.Cut(want, "no such flag: "); ok {
			assert.Equal(t, want, err.Error(), "the error quotes %s as typed", flag)
		}
	}
	_, err := cli.Parse([]string{"--wdir", "", "p"})
	assert.ErrorContains(t, err, "is empty")
	_, err = cli.Parse([]string{"--stdin", "a\nb for flag -x: c", "p"})
	assert.ErrorContains(t, err, "--stdin")
}

func TestParseHelpAndVersion(t *testing.T) {
	for _, flag := range []string{"-h", "-help", "--help"} {
		_, err := cli.Parse([]string{"-n", "2", flag})
		assert.ErrorIs(t, err, cli.ErrHelp)
	}
	_, err := cli.Parse(strings.Fields("a : --help b"))
	assert.ErrorIs(t, err, cli.ErrHelp)
	for _, line := range []string{"--version", "--version prog", "-v"} {
		_, err := cli.Parse(strings.Fields(line))
		assert.ErrorIs(t, err, cli.ErrVersion)
	}
	for _, flag := range []string{"-v", "--verbose"} {
		cmd, err := cli.Parse([]string{flag, "prog"})
		require.NoError(t, err)
		assert.Equal(t, []cli.Setting{{Key: "verbose", Value: "true"}}, cmd.Settings)
	}
	_, err = cli.Parse([]string{"a", ":", "-v"})
	assert.ErrorContains(t, err, "-v applies to the whole job")
}

func FuzzParse(f *testing.F) {
	for _, args := range []string{
		"-n 2 p", "-np 3 -x A=B -x C p : -n 1 q", "--set a.b=c --btl sm p", "-H h:2 --timeout 3 p :", "-- p", "--stdin all -v",
		"-x  p", "--n=2 p", "-n 2 p : : q", "--help", "--bind-to core --bind-to none p", "-", "---n 2 p", "-\r", "--set a\nb=c p",
	} {
		f.Add(args)
	}
	f.Fuzz(func(t *testing.T, line string) {
		cmd, err := cli.Parse(strings.Split(line, " "))
		if err != nil {
			require.NotContains(t, err.Error(), "\n")
			require.NotContains(t, err.Error(), "\r")
			return
		}
		if cmd.Size() < 1 || cmd.Size() > cli.MaxRanks || cmd.Stdin >= cmd.Size() || cmd.Timeout < 0 {
			t.Fatalf("%q gives %+v", line, cmd)
		}
		for _, g := range cmd.Groups {
			if g.Ranks < 1 || slices.Contains(g.Args, ":") || slices.ContainsFunc(g.Env, func(v cli.Var) bool { return v.Name == "" }) {
				t.Fatalf("%q gives %+v", line, g)
			}
		}
	})
}

// Without -n, --map-by ppr:N:node starts N ranks on each host.
func TestSetHostCountFillsRanks(t *testing.T) {
	for line, want := range map[string]int{
		"--map-by ppr:2:node a":       6,
		"--map-by ppr:2:node -n 5 a":  5,
		"--map-by node a":             1,
		"--map-by ppr:2:node a : b":   2,
		"--map-by ppr:2:node -n 1 a ": 1,
	} {
		cmd, err := cli.Parse(strings.Fields(line))
		require.NoError(t, err, line)
		require.NoError(t, cmd.SetHostCount(3), line)
		require.Equal(t, want, cmd.Size(), line)
	}
	cmd, err := cli.Parse(strings.Fields("--stdin 6 --map-by ppr:2:node a"))
	require.NoError(t, err)
	require.ErrorContains(t, cmd.SetHostCount(3), "--stdin 6: the job has no such rank, only 0 to 5")
	cmd, err = cli.Parse(strings.Fields("--map-by ppr:40000:node a"))
	require.NoError(t, err)
	require.ErrorContains(t, cmd.SetHostCount(3), "120000 ranks: a job has at most")
}
