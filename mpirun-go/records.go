package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/profile"
	"github.com/mpigo/mpigo/mpirun-go/internal/trace"
)

// prepareRecords makes the directories of --profile, --cpuprofile and --trace, removes what an
// earlier job has left there, and adds the settings by which ranks know them. Ranks may have
// another working directory, so paths are absolute.
func prepareRecords(cmd *cli.Command) error {
	for _, flag := range []struct {
		name  string
		dir   *string
		clear func(dir string) error
	}{
		{"profile", &cmd.Profile, profile.Clear},
		{"cpuprofile", &cmd.CPUProfile, nil},
		{"trace", &cmd.Trace, trace.Clear},
	} {
		if *flag.dir == "" {
			continue
		}
		dir, err := filepath.Abs(*flag.dir)
		if err == nil {
			err = os.MkdirAll(dir, 0o777)
		}
		if err == nil && flag.clear != nil {
			err = flag.clear(dir)
		}
		if err != nil {
			return fmt.Errorf("--%s: %w", flag.name, err)
		}
		*flag.dir = dir
		cmd.Settings = append(cmd.Settings, cli.Setting{Key: flag.name, Value: dir})
	}
	return nil
}

// reportRecords makes what the user looks at from the files of the ranks.
func reportRecords(cmd *cli.Command, size int) {
	if cmd.Profile != "" {
		j, err := profile.Load(cmd.Profile, size)
		path := ""
		if err == nil {
			path, err = j.Write(cmd.Profile)
		}
		logRecord("profile", path, err, func() []int { return j.Missing }, size)
	}
	if cmd.Trace != "" {
		j, err := trace.Load(cmd.Trace, size)
		path := ""
		if err == nil {
			path, err = j.Write(cmd.Trace)
		}
		logRecord("trace", path, err, func() []int { return j.Missing }, size)
	}
}

// logRecord says where the result of a flag is, or why there is none.
func logRecord(flag, path string, err error, missing func() []int, size int) {
	if err != nil {
		logf("--%s: %v", flag, err)
		return
	}
	without := ""
	if n := len(missing()); n > 0 {
		without = fmt.Sprintf(" (without %d of %d ranks, which wrote none here)", n, size)
	}
	logf("%s: %s%s", flag, path, without)
}
