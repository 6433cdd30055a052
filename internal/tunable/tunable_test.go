package tunable_test

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/mpigo/mpigo/internal/tunable"
)

func env(pairs ...string) func(string) string {
	return func(name string) string {
		for _, p := range pairs {
			if n, v, _ := strings.Cut(p, "="); n == name {
				return v
			}
		}
		return ""
	}
}

// reserved are variables that the launcher sets for ranks. No tunable may have their names.
var reserved = []string{"MPIGO_RANK", "MPIGO_SIZE", "MPIGO_LOCAL_RANK", "MPIGO_LOCAL_SIZE", "MPIGO_SECRET", "MPIGO_OVERSUBSCRIBED"}

func TestTableHasValidRows(t *testing.T) {
	all := tunable.All()
	require.NotEmpty(t, all)
	word := regexp.MustCompile(`^[a-z][a-z0-9]*(\.[a-z][a-z0-9]*)*$`)
	for i, row := range all {
		assert.Regexp(t, word, row.Key)
		assert.NotEmpty(t, row.Doc, row.Key)
		assert.NotContains(t, row.Doc, "\n", row.Key)
		assert.NotContains(t, reserved, row.Env())
		if i > 0 {
			assert.Less(t, all[i-1].Key, row.Key, "the keys must be sorted, each once")
		}
		_, err := tunable.Set{}.With(row.Key, row.Default, tunable.FromCommandLine)
		assert.NoError(t, err, "the tunable must accept its default")
	}
}

func TestZeroSetHasDefaults(t *testing.T) {
	var set tunable.Set
	assert.Equal(t, []string{"self", "sm", "ibverbs", "tcp"}, set.List("btl"))
	assert.Equal(t, int64(1<<20), set.Bytes("sm.ring.bytes"))
	assert.Equal(t, int64(-1), set.Int("progress.spin"))
	assert.True(t, set.Bool("progress.sleep"))
	assert.Positive(t, set.Duration("progress.yield"))
	assert.Empty(t, set.Environ())
	text, origin := set.Text("verbose")
	assert.Equal(t, "false", text)
	assert.Equal(t, tunable.FromDefault, origin)
}

func TestFromEnvReadsVariables(t *testing.T) {
	set, err := tunable.FromEnv(env(
		"MPIGO_SM_RING_BYTES=64K", "MPIGO_BTL= sm , self", "MPIGO_PROGRESS_YIELD=2ms", "MPIGO_VERBOSE=yes", "MPIGO_PROGRESS_SPIN="))
	require.NoError(t, err)
	assert.Equal(t, int64(64<<10), set.Bytes("sm.ring.bytes"))
	assert.Equal(t, []string{"sm", "self"}, set.List("btl"))
	assert.Equal(t, 2*time.Millisecond, set.Duration("progress.yield"))
	assert.True(t, set.Bool("verbose"))
	assert.Equal(t, int64(-1), set.Int("progress.spin"), "an empty variable counts as not set")
	text, origin := set.Text("sm.ring.bytes")
	assert.Equal(t, "64K", text)
	assert.Equal(t, tunable.FromEnvironment, origin)
}

func TestFromEnvReportsEveryBadValue(t *testing.T) {
	set, err := tunable.FromEnv(env("MPIGO_SM_RING_BYTES=lots", "MPIGO_BTL=sm,warp", "MPIGO_VERBOSE=1"))
	require.ErrorIs(t, err, tunable.ErrValue)
	assert.ErrorContains(t, err, `sm.ring.bytes="lots" (from MPIGO_SM_RING_BYTES): bad value: want a size such as 4096, 64K or 1M from 4K to 4G`)
	assert.ErrorContains(t, err, `btl="sm,warp" (from MPIGO_BTL): bad value: want a comma-separated list, each once, of self, sm`)
	_, err = tunable.FromEnv(env("MPIGO_TCP_INCLUDE=eth0,eth0"))
	assert.ErrorContains(t, err, "of interfaces, addresses and networks, each once")
	assert.True(t, set.Bool("verbose"), "FromEnv keeps the good values")
	assert.Equal(t, int64(1<<20), set.Bytes("sm.ring.bytes"))
}

func TestWithChecksValues(t *testing.T) {
	for _, c := range []struct {
		key   string
		ok    bool
		texts []string
	}{
		{"sm.ring.bytes", true, []string{"4096", "4G"}},
		{"sm.ring.bytes", false, []string{"4095", "5G", "-4K"}},
		{"progress.spin", true, []string{"-1"}},
		{"progress.spin", false, []string{"-2", "1.5", "many"}},
		{"progress.yield", true, []string{"100us", "0"}},
		{"progress.yield", false, []string{"100", "-1s"}},
		{"verbose", true, []string{"on", "Off"}},
		{"verbose", false, []string{"perhaps", "json"}},
		{"stats", true, []string{"1", "Yes", "off", "json"}},
		{"stats", false, []string{"perhaps", "table", "json,true"}},
		{"btl", true, []string{"sm", "self,tcp"}}, // comm decides whether they suffice
		{"btl", false, []string{"self,loop", "sm,sm", "sm,", ""}},
		{"ibverbs.devices", true, []string{"all", "mlx5_0, mlx5_1:2", "a|b:2,c|d", "a|b,b|a"}},
		{"ibverbs.devices", false, []string{
			"all,mlx5_0", "a|b,c|b", "a,b|c|a", "a,a:1", "a:0", "a:256", "a:x", "a:", ":1",
			"a|", "a:1:2",
		}},
		{"ibverbs.pkey", true, []string{"first", "0x8001", "1", "0xffff", "32767"}},
		{"ibverbs.pkey", false, []string{"", "0", "0x8000", "0x10000", "-1", "any", "x"}},
		{"ibverbs.gid.network", true, []string{"any", "10.0.0.0/8", "fd00::/8", "10.1.2.3/8", "10.0.0.1"}},
		{"ibverbs.gid.network", false, []string{"", "10.0.0", "10.0.0.0/33", "all", "10/8", "::ffff:10.0.0.0/104"}},
		{"ibverbs.sl", false, []string{"-1", "16"}},
		{"ibverbs.tclass", false, []string{"-1", "256"}},
		{"ibverbs.hops", false, []string{"0", "256"}},
		{"tcp.include", true, []string{
			"all",
			"eth0,10.0.0.0/8,10.0.0.1,::1,[::1],[fd00::]/8,fd00::/8,fe80::1%eth0,br-lan.100,1.2",
		}},
		{"tcp.include", false, []string{
			"10.0.0.1/99", "10.0.0/8", "10.0.0.300", "eth0/24", "fe80::1::2", "10.0.0.1:5000",
			"[::1", "[::1]:5000", "[10.0.0.1]", "eth0 eth1", "all,eth0", "none",
		}},
		{"tcp.exclude", true, []string{"none", "eth0,lo"}},
		{"tcp.exclude", false, []string{"all", "none,eth0", "10.0.0.1/99"}},
		{"tcp.ports", true, []string{"any", "1-65535", " 20000 - 20099", "5000-5000"}},
		{"tcp.ports", false, []string{
			"5000", "0-100", "5001-5000", "5000-65536", "5000-", "-5000", "5000-5010-5020",
			"5000-5010,6000-6010", "a-b",
		}},
	} {
		for _, text := range c.texts {
			set, err := tunable.Set{}.With(c.key, text, tunable.FromCommandLine)
			if c.ok {
				require.NoError(t, err, "%s=%s", c.key, text)
				assert.Equal(t, []string{tunable.EnvName(c.key) + "=" + text}, set.Environ())
				continue
			}
			var bad *tunable.ValueError
			require.ErrorAs(t, err, &bad, "%s=%s", c.key, text)
			assert.ErrorIs(t, err, tunable.ErrValue)
			assert.Equal(t, c.key, bad.Key)
			assert.Equal(t, text, bad.Value)
			assert.Empty(t, set.Environ())
		}
	}
}

func TestUnknownVariablesNamesMisspeltOnes(t *testing.T) {
	known := []string{"PATH=/bin", "MPIGO=1", "MPIGO_INIT_PID=7", "MPIGO_OWN_GOMAXPROCS=1", "MPIGO_TEST_SPLITS=9", "MPIGO_NO_VALUE="}
	for _, row := range tunable.All() {
		known = append(known, row.Env()+"="+row.Default)
	}
	for _, name := range reserved {
		known = append(known, name+"=1")
	}
	assert.Empty(t, tunable.UnknownVariables(known))
	assert.Equal(t, []string{
		`"MPIGO_SM_RING_BYTS" is ignored: no tunable has this environment variable: did you mean MPIGO_SM_RING_BYTES?`,
		`"MPIGO_btl" is ignored: no tunable has this environment variable: did you mean MPIGO_BTL?`,
		`"MPIGO_completely_different" is ignored: no tunable has this environment variable`,
	}, tunable.UnknownVariables(append(known, "MPIGO_completely_different=1", "MPIGO_btl=sm", "MPIGO_SM_RING_BYTS=3", "MPIGO_SM_RING_BYTS=4")))
}

func TestWithUnknownKeySuggestsSimilarKey(t *testing.T) {
	_, err := tunable.Set{}.With("sm.ring.byte", "1M", tunable.FromCommandLine)
	require.ErrorIs(t, err, tunable.ErrUnknown)
	assert.EqualError(t, err, `unknown tunable "sm.ring.byte": did you mean sm.ring.bytes?`)

	_, err = tunable.Set{}.With("SM.ring.bytes", "1M", tunable.FromCommandLine)
	assert.ErrorContains(t, err, "did you mean sm.ring.bytes?")

	_, err = tunable.Set{}.With("completely-different-thing", "1", tunable.FromCommandLine)
	assert.EqualError(t, err, `unknown tunable "completely-different-thing"`)
}

func TestWithDoesNotChangeTheOriginal(t *testing.T) {
	first, err := tunable.FromEnv(env("MPIGO_VERBOSE=1"))
	require.NoError(t, err)
	second, err := first.With("verbose", "0", tunable.FromCommandLine)
	require.NoError(t, err)
	assert.True(t, first.Bool("verbose"))
	assert.False(t, second.Bool("verbose"))
	_, origin := second.Text("verbose")
	assert.Equal(t, tunable.FromCommandLine, origin)
	assert.Equal(t, "command line", origin.String())
}

func TestCallersOwnResults(t *testing.T) {
	set, err := tunable.Set{}.With("btl", "sm,self", tunable.FromCommandLine)
	require.NoError(t, err)
	set.List("btl")[0] = "broken"
	assert.Equal(t, []string{"sm", "self"}, set.List("btl"))
	tunable.All()[0].Key = "broken"
	_, found := tunable.Find("broken")
	assert.False(t, found)
}

func TestAccessorWithBadKeyOrKindPanics(t *testing.T) {
	assert.Panics(t, func() { tunable.Set{}.Bytes("no.such.key") })
	assert.Panics(t, func() { tunable.Set{}.Bytes("verbose") })
	assert.Panics(t, func() { tunable.Set{}.Text("no.such.key") })
}

func TestEnvironFromEnvRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var set tunable.Set
		var err error
		for _, row := range tunable.All() {
			if row.Kind != tunable.Bytes || !rapid.Bool().Draw(t, "set "+row.Key) {
				continue
			}
			n := rapid.Int64Range(row.Min, row.Max).Draw(t, row.Key)
			set, err = set.With(row.Key, tunable.FormatBytes(n), tunable.FromCommandLine)
			if err != nil {
				t.Fatal(err)
			}
		}
		got, err := tunable.FromEnv(env(set.Environ()...))
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Environ(), set.Environ()) {
			t.Fatalf("sent %q, got %q", set.Environ(), got.Environ())
		}
	})
}

func TestParseBytesAcceptsSizesOnly(t *testing.T) {
	for text, want := range map[string]int64{
		"0": 0, "1": 1, "64k": 64 << 10, "64KiB": 64 << 10, "64KB": 64 << 10, "1M": 1 << 20, "3G": 3 << 30, "2T": 2 << 40, "7B": 7,
		"9223372036854775807": 1<<63 - 1,
	} {
		got, err := tunable.ParseBytes(text)
		require.NoError(t, err, text)
		assert.Equal(t, want, got, text)
	}
	for _, text := range []string{"", "K", "-1", "+1", "1.5M", "1 M", "1MM", "0x10", "9223372036854775808", "8388608T", "1_000", "１"} {
		_, err := tunable.ParseBytes(text)
		assert.Error(t, err, text)
	}
}

func FuzzParseBytes(f *testing.F) {
	for _, s := range []string{"", "64K", "1M", "9223372036854775807", "8388607T", "KIB", "-1", "ıK"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := tunable.ParseBytes(text)
		if err != nil {
			return
		}
		if n < 0 {
			t.Fatalf("%q is %d", text, n)
		}
		again, err := tunable.ParseBytes(tunable.FormatBytes(n))
		if err != nil || again != n {
			t.Fatalf("%q is %d, written %q, read %d, %v", text, n, tunable.FormatBytes(n), again, err)
		}
	})
}

func FuzzWith(f *testing.F) {
	f.Add("btl", "sm,self")
	f.Add("sm.ring.bytes", "1M")
	f.Add("progress.yield", "1h")
	f.Add("sm.rings", "\x00")
	f.Fuzz(func(t *testing.T, key, text string) {
		set, err := tunable.Set{}.With(key, text, tunable.FromCommandLine)
		if err != nil {
			if !errors.Is(err, tunable.ErrUnknown) && !errors.Is(err, tunable.ErrValue) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		if _, err := tunable.FromEnv(env(set.Environ()...)); err != nil {
			t.Fatalf("%s=%q is accepted by With, not by FromEnv: %v", key, text, err)
		}
	})
}

func TestParseCheckKnowsEachMode(t *testing.T) {
	for text, want := range map[string]tunable.CheckMode{
		"false": tunable.NoCheck, "off": tunable.NoCheck, "true": tunable.Check, "1": tunable.Check, "strict": tunable.CheckStrict,
	} {
		mode, ok := tunable.ParseCheck(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, mode, text)
	}
	_, ok := tunable.ParseCheck("lax")
	assert.False(t, ok)
}

func TestParseStatsKnowsEachForm(t *testing.T) {
	for text, want := range map[string]tunable.StatsForm{
		"true": tunable.StatsTable, "1": tunable.StatsTable, "false": tunable.NoStats, "off": tunable.NoStats, "json": tunable.StatsJSON,
	} {
		form, ok := tunable.ParseStats(text)
		assert.True(t, ok, text)
		assert.Equal(t, want, form, text)
	}
	_, ok := tunable.ParseStats("csv")
	assert.False(t, ok)
}
