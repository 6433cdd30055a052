package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/profile"
)

// prepareRecords makes the directories of --profile and --cpuprofile, removes what an earlier job
// has left there, and adds the settings by which ranks know them. Ranks may have another working
// directory, so paths are absolute.
func prepareRecords(cmd *cli.Command) error {
	for _, flag := range []struct {
		name  string
		dir   *string
		clear func(dir string) error
	}{
		{"profile", &cmd.Profile, profile.Clear},
		{"cpuprofile", &cmd.CPUProfile, nil},
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
		page := ""
		if err == nil {
			page, err = j.Write(cmd.Profile)
		}
		if err != nil {
			logf("--profile: %v", err)
			return
		}
		missing := ""
		if n := len(j.Missing); n > 0 {
			missing = fmt.Sprintf(" (without %d of %d ranks, which wrote none here)", n, size)
		}
		logf("profile: %s%s", page, missing)
	}
}
