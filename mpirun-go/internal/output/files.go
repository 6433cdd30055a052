package output

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Files holds the two output files of one rank in --output-dir.
type Files struct {
	Stdout, Stderr *os.File
}

// Close closes both files.
func (f Files) Close() error {
	return errors.Join(f.Stdout.Close(), f.Stderr.Close())
}

// OpenFiles creates dir, and in it empty files rank.N.stdout and rank.N.stderr for each of size
// ranks. On error it closes all files.
func OpenFiles(dir string, size int) ([]Files, error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("output directory: %w", err)
	}
	files := make([]Files, 0, size)
	for rank := range size {
		f, err := openPair(dir, rank)
		if err != nil {
			for _, open := range files {
				_ = open.Close()
			}
			return nil, fmt.Errorf("output directory: %w", err)
		}
		files = append(files, f)
	}
	return files, nil
}

func openPair(dir string, rank int) (Files, error) {
	stdout, err := os.Create(filepath.Join(dir, fmt.Sprintf("rank.%d.stdout", rank)))
	if err != nil {
		return Files{}, err
	}
	stderr, err := os.Create(filepath.Join(dir, fmt.Sprintf("rank.%d.stderr", rank)))
	if err != nil {
		_ = stdout.Close()
		return Files{}, err
	}
	return Files{Stdout: stdout, Stderr: stderr}, nil
}
