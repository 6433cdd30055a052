package bench

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	for args, check := range map[string]func(cfg config){
		"latency": func(cfg config) {
			assert.Equal(t, 64, cfg.window)
			assert.Len(t, cfg.sizes, 23)
			assert.Equal(t, 1, cfg.sizes[0])
			assert.Equal(t, 4<<20, cfg.sizes[22])
		},
		"bw -m 8:64 -i 7 -x 0 -W 3 --alloc --json": func(cfg config) {
			assert.Equal(t, []int{8, 16, 32, 64}, cfg.sizes)
			iterations, warmUp := cfg.iterationsAt(1 << 20)
			assert.Equal(t, []int{7, 0, 3}, []int{iterations, warmUp, cfg.window})
			assert.True(t, cfg.alloc && cfg.json)
		},
		"allreduce": func(cfg config) {
			assert.Equal(t, 4, cfg.sizes[0])
			assert.Equal(t, 1<<20, cfg.sizes[len(cfg.sizes)-1])
		},
		"latency -m 0:2K": func(cfg config) { assert.Equal(t, []int{0, 1, 2}, cfg.sizes[:3]) },
		"latency -m 64K,8,1:4": func(cfg config) {
			assert.Equal(t, []int{64 << 10, 8, 1, 2, 4}, cfg.sizes)
			assert.Equal(t, 64<<10, (&job{cfg: cfg}).largest())
		},
		"iallreduce -t 100": func(cfg config) { assert.Equal(t, 100, cfg.tests) },
		"barrier -i 5":      func(cfg config) { assert.Equal(t, []int{0}, cfg.sizes) },
		"latency --fresh --pool 1M --unexpected 10 --two-comms --isend --validate --local 2": func(cfg config) {
			assert.Equal(t, 1<<20, cfg.poolBytes)
			assert.Equal(t, 10, cfg.unexpected)
			assert.Equal(t, 2, cfg.local)
			assert.True(t, cfg.fresh && cfg.twoComms && cfg.isend && cfg.validate)
		},
	} {
		cfg, err := parse(strings.Fields(args))
		require.NoError(t, err, args)
		check(cfg)
	}
}

func TestIterationsOfLargeSizesAreFewer(t *testing.T) {
	cfg, err := parse([]string{"latency"})
	require.NoError(t, err)
	small, _ := cfg.iterationsAt(8 << 10)
	large, _ := cfg.iterationsAt(8<<10 + 1)
	assert.Greater(t, small, large)
}

func TestParseMistakesFails(t *testing.T) {
	for args, want := range map[string]string{
		"":                         "NAME is missing: mpirun-go bench latency",
		"-m 8:8":                   `there is no benchmark "-m"`,
		"lat":                      `there is no benchmark "lat"`,
		"latency 8":                `unexpected argument "8"`,
		"latency -z":               "latency: no such flag: -z",
		"latency --json=x":         `latency: --json "x": want true or false`,
		"latency --nonsense":       "latency: no such flag: --nonsense",
		"barrier -n 4":             "-n is a flag of mpirun-go, before NAME: mpirun-go bench -n 4 barrier",
		"latency -i":               "latency: -i needs a value",
		"latency -i many":          `latency: -i "many": want a number`,
		"latency -i 0":             "-i 0: it must be from 1 to",
		"latency -i -3":            "-i -3: it must be from 1 to",
		"latency -x -1":            "-x -1: it must be from 0 to",
		"bw -W 0":                  "-W 0: it must be from 1 to",
		"latency -W 5":             "latency: it does not take -W; these do: bw bibw mbw_mr",
		"bw --isend":               "bw: it does not take --isend",
		"platency --fresh":         "it does not take --fresh",
		"allreduce --unexpected 5": "it does not take --unexpected",
		"iallreduce -t -1":         "-t -1: it must be from 0 to",
		"allreduce -t 5":           "allreduce: it does not take -t; these do: ibarrier ibcast",
		"bcast_persistent --fresh": "it does not take --fresh",
		"barrier -m 8:8":           "barrier: it does not take -m",
		"empty -i 4":               "empty: it does not take -i",
		"latency --unexpected 101": "--unexpected 101: it must be from 0 to 100",
		"latency -m 8:4":           "the range from 8 to 4 bytes is empty",
		"latency -m x":             `"x" is not a size`,
		"latency -m 1:2:3":         `"2:3" is not a size`,
		"latency -m 8,":            `"" is not a size`,
		"latency -m 8,,9":          `"" is not a size`,
		"latency -m " + strings.Repeat("1,", 256) + "1": "257 sizes: at most 256",
		"latency -m -1:4":           `"-1" is not a size`,
		"latency -m 1:1T":           `"1T" is not a size`,
		"latency -m 1:2G":           "the largest size is 1G",
		"latency -m 99999999999999": "the largest size is 1G",
		"latency -m 9999999999999G": "is not a size",
		"allreduce -m 1:64":         "multiples of an element, 4 bytes",
		"latency --pool 1M":         "--pool needs --fresh",
		"latency --fresh --pool ?":  `--pool "?" is not a size`,
		"latency --fresh --pool 0":  "--pool is 0: a pool has at least 64K",
		"latency --local 0":         "--local 0: it must be from 1 to",
	} {
		_, err := parse(strings.Fields(args))
		if assert.Error(t, err, args) {
			assert.Contains(t, err.Error(), want, args)
			assert.NotContains(t, err.Error(), "\n", args)
		}
	}
}

func TestHelpNamesEveryBenchmarkAndFlag(t *testing.T) {
	for _, args := range []string{"-h", "--help", "latency -h"} {
		_, err := parse(strings.Fields(args))
		assert.ErrorIs(t, err, errHelp, args)
	}
	for _, b := range table() {
		assert.Contains(t, helpText(), b.name)
		for _, f := range b.flags {
			assert.Contains(t, helpText(), "  "+spell(f))
		}
	}
}

func TestCheckRanks(t *testing.T) {
	for args, ranks := range map[string][2]int{ // one that will do, one that will not
		"latency":                   {2, 3},
		"bw":                        {2, 1},
		"multi_lat":                 {4, 3},
		"barrier":                   {3, 1},
		"ibarrier":                  {2, 1},
		"bcast_persistent":          {3, 1},
		"latency --local 2":         {1, 2},
		"mbw_mr --local 4 -m 8":     {1, 4},
		"allreduce --local 7 -m 64": {1, 7},
	} {
		cfg, err := parse(strings.Fields(args))
		require.NoError(t, err)
		assert.NoError(t, cfg.checkRanks(ranks[0]), args)
		assert.Error(t, cfg.checkRanks(ranks[1]), args)
	}
}

func TestParseSizes(t *testing.T) {
	for text, want := range map[string]int{"0": 0, "17": 17, "64K": 64 << 10, "2m": 2 << 20, "1G": 1 << 30} {
		n, err := parseSize(text)
		assert.NoError(t, err, text)
		assert.Equal(t, want, n, text)
	}
	for _, text := range []string{"", "K", "1KB", "-1", "1.5K", " 1", "99999999999999999999", "9223372036854775807K"} {
		_, err := parseSize(text)
		assert.Error(t, err, text)
	}
	for text, want := range map[string]span{"8:16": {8, 16}, "8:": {8, 99}, ":16": {1, 16}, ":": {1, 99}, "16": {16, 16}, "0:0": {0, 0}} {
		s, err := parseSpan(text, span{1, 99})
		assert.NoError(t, err, text)
		assert.Equal(t, want, s, text)
	}
	assert.Equal(t, []int{3, 6, 12}, span{3, 20}.sizes(1))
	assert.Equal(t, []int{0, 4, 8}, span{0, 8}.sizes(4))
	assert.Equal(t, []int{0}, span{0, 0}.sizes(4))
}

func FuzzParseSizes(f *testing.F) {
	for _, s := range []string{"8:64K", "1M", ":", "0:0", "4:", "1G:1G", "8,64,1K:4K"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		all, err := parseSizes(text, span{4, 4 << 20}, 4)
		if err != nil {
			return
		}
		require.NotEmpty(t, all)
		require.LessOrEqual(t, len(all), maxSizes)
		for _, n := range all {
			require.Zero(t, n%4)
			require.True(t, n >= 0 && n <= maxBytes)
		}
	})
}

// TestPeerProgramHasTheSameNumbers compares the C program for other libraries with this one.
func TestPeerProgramHasTheSameNumbers(t *testing.T) {
	text, err := os.ReadFile("../../bench/peers/peer.c")
	require.NoError(t, err)
	defined := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^#define ([A-Z_]+) (.+)$`).FindAllStringSubmatch(string(text), -1) {
		defined[m[1]] = m[2]
	}
	all := func(c counts) string {
		return fmt.Sprintf("{%d, %d, %d, %d}", c.small, c.smallWarmUp, c.large, c.largeWarmUp)
	}
	assert.Equal(t, map[string]string{
		"WINDOW":            fmt.Sprint(defaultWindow),
		"POOL_BYTES":        fmt.Sprintf("(%dL << 20)", defaultPoolBytes>>20),
		"LARGE_BYTES":       fmt.Sprintf("(%dL << 10)", largeBytes>>10),
		"LATENCY_COUNTS":    all(latencyCounts),
		"BANDWIDTH_COUNTS":  all(bandwidthCounts),
		"COLLECTIVE_COUNTS": all(collectiveCounts),
		"MAX_SIZES":         fmt.Sprint(maxSizes),
		"SIDE":              fmt.Sprint(matrixSide),
	}, defined)
	names := regexp.MustCompile(`(?m)^    {"([a-z_]+)", `).FindAllStringSubmatch(string(text), -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		_, known := find(name[1])
		assert.True(t, known, name[1])
	}
}
