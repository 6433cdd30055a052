package doctor

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// buildHash is a short hash of the executable, "" if it cannot be read.
func buildHash() string {
	file, err := os.Open("/proc/self/exe")
	if err != nil {
		return ""
	}
	defer file.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, file); err != nil {
		return ""
	}
	return hex.EncodeToString(sum.Sum(nil)[:6])
}

// capIPCLock is the number of the capability that lifts RLIMIT_MEMLOCK (capabilities(7)).
const capIPCLock = 14

// hasCapability reports whether this process has a capability.
func hasCapability(root string, number uint) bool {
	text, _ := os.ReadFile(filepath.Join(root, "proc/self/status"))
	_, rest, _ := strings.Cut(string(text), "\nCapEff:")
	set, _, _ := strings.Cut(strings.TrimSpace(rest), "\n")
	mask, err := strconv.ParseUint(strings.TrimSpace(set), 16, 64)
	return err == nil && mask>>number&1 == 1
}

func mtu(root, name string) int {
	n, _ := strconv.Atoi(readLine(root, path.Join("sys/class/net", name, "mtu")))
	return n
}
