package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/mpigo/mpigo/mpirun-go/internal/cli"
	"github.com/mpigo/mpigo/mpirun-go/internal/info"
)

// runVersion runs mpirun-go version and returns the exit status.
func runVersion(con *console, args []string) int {
	switch {
	case len(args) == 0:
		fmt.Print(info.VersionText())
	case len(args) == 1 && (args[0] == "--help" || args[0] == "-h"):
		fmt.Print(versionHelp)
	default:
		con.logf("version: unexpected argument %q", args[0])
		return statusUsage
	}
	return 0
}

// runInfo runs mpirun-go info and returns the exit status.
func runInfo(con *console, args []string) int {
	flags := flag.NewFlagSet("info", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	asJSON := flags.Bool("json", false, "")
	var settings []cli.Setting
	flags.Func("btl", "", func(s string) error {
		settings = append(settings, cli.Setting{Key: "btl", Value: s})
		return nil
	})
	flags.Func("set", "", func(s string) error {
		setting, err := cli.ParseSetting(s)
		settings = append(settings, setting)
		return err
	})
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Print(infoHelp)
		return 0
	}
	if err == nil && flags.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if err != nil {
		con.logf("info: %v", err)
		return statusUsage
	}
	set, err := tunables(settings)
	if err != nil {
		con.logf("%v", oneLine(err))
		return statusUsage
	}
	warnUnknownVariables(con, nil)
	report := info.Collect(set)
	if *asJSON {
		err = report.JSON(os.Stdout)
	} else {
		err = report.Text(os.Stdout)
	}
	if err != nil {
		con.logf("info: %v", err)
		return statusFailed
	}
	return 0
}
