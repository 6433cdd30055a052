// Tutorial runs the lines of docs/tutorial.md in a temporary directory, and compares what they
// print with what the page shows. scripts/tutorial.sh has go take the version that the page names
// from the commit at HEAD. It runs in the repository's root:
//
//	scripts/tutorial.sh
//
// In the page,
//
//   - indented lines are commands, which one shell runs in turn;
//   - a block ```go is a file, with the last name in backquotes before it that ends in ".go";
//   - a block ```text is the output of the command before it, in which … stands for any text in a
//     line, and on a line of its own for any lines;
//   - "status N" between a command and its output is the command's exit status, otherwise 0.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

func main() {
	hosts := flag.Bool("hosts", false, "there are hosts n1 and n2; otherwise commands with -H are left out")
	flag.Parse()
	if err := run("docs/tutorial.md", *hosts); err != nil {
		fmt.Fprintln(os.Stderr, "tutorial:", err)
		os.Exit(1)
	}
}

func run(page string, hosts bool) error {
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	steps, err := parse(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	dir, err := os.MkdirTemp("", "mpigo-tutorial-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	s := &shell{dir: dir}
	ran := 0
	for _, step := range steps {
		if !hosts && strings.Contains(step.command, " -H ") {
			fmt.Printf("left out, because there are no hosts: %s\n", step.command)
			continue
		}
		if err := s.do(step); err != nil {
			return fmt.Errorf("%s:%d: %w", page, step.line, err)
		}
		if step.command != "" {
			ran++
		}
	}
	fmt.Printf("%d commands of %s work\n", ran, page)
	return nil
}

// step is a file to write, or a command to run.
type step struct {
	line    int // in the page
	file    string
	content string

	command   string
	status    int
	hasOutput bool
	output    string
}

var (
	fileName   = regexp.MustCompile("`([\\w/]+\\.go)`")
	statusText = regexp.MustCompile(`\bstatus (\d+)`)
)

// parse returns the steps of a page.
func parse(text string) ([]step, error) {
	var steps []step
	file, fence, status := "", "", 0
	var block strings.Builder
	for i, line := range strings.Split(text, "\n") {
		switch {
		case fence != "" && line == "```":
			last := len(steps) - 1
			switch {
			case fence == "go" && file == "":
				return nil, fmt.Errorf("line %d: a program without a name", i+1)
			case fence == "go":
				steps = append(steps, step{line: i + 1, file: file, content: block.String()})
				file = ""
			case fence != "text" || last < 0 || steps[last].command == "" || steps[last].hasOutput:
				return nil, fmt.Errorf("line %d: a block that is neither a program nor the output of a command", i+1)
			default:
				steps[last].hasOutput, steps[last].output, steps[last].status = true, block.String(), status
			}
			fence = ""
		case fence != "":
			block.WriteString(line + "\n")
		case strings.HasPrefix(line, "```"):
			fence = line[3:]
			block.Reset()
			if fence == "" {
				return nil, fmt.Errorf("line %d: a block without a language", i+1)
			}
		case strings.HasPrefix(line, "    "):
			steps = append(steps, step{line: i + 1, command: line[4:]})
			status = 0
		default:
			for _, m := range fileName.FindAllStringSubmatch(line, -1) {
				file = m[1]
			}
			if m := statusText.FindStringSubmatch(line); m != nil {
				status, _ = strconv.Atoi(m[1])
			}
		}
	}
	return steps, nil
}

// shell runs commands one after another.
type shell struct {
	dir     string // the working directory, to which the names of files are relative
	exports string // the page's commands that export variables
}

func (s *shell) do(step step) error {
	if step.file != "" {
		path := filepath.Join(s.dir, step.file)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.WriteFile(path, []byte(step.content), 0o644)
	}
	fmt.Println("$", step.command)
	if to, ok := strings.CutPrefix(step.command, "cd "); ok {
		s.dir = filepath.Join(s.dir, to)
		return nil
	}
	if strings.HasPrefix(step.command, "export ") {
		s.exports += step.command + "\n"
		return nil
	}
	cmd := exec.Command("timeout", "300", "bash", "-o", "pipefail", "-c", s.exports+step.command)
	cmd.Dir = s.dir
	out, err := cmd.CombinedOutput()
	fmt.Print(string(out))
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	if status := cmd.ProcessState.ExitCode(); status != step.status {
		return fmt.Errorf("%s: exit status %d, want %d", step.command, status, step.status)
	}
	if step.hasOutput && !pattern(step.output).Match(out) {
		return fmt.Errorf("%s: the output is not as shown:\n%s", step.command, step.output)
	}
	return nil
}

// pattern returns an expression for the output that the page shows.
func pattern(shown string) *regexp.Regexp {
	p := strings.ReplaceAll("\n"+regexp.QuoteMeta(shown), "\n…\n", "\n(?:.*\n)*")
	return regexp.MustCompile("^" + strings.ReplaceAll(p[1:], "…", ".*") + "$")
}
