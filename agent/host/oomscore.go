package host

import (
	"os"
	"strings"
	"sync"
)

const oomScoreFile = "/proc/self/oom_score_adj"

var oomScore sync.Mutex

// withUsualOOMScore starts a program while this process has the score of a usual service, since a program inherits what its parent has at that
// moment: the score that keeps the agent alive when memory runs out is not for what it runs. A thousandth of a second later the agent has its
// own again, to which it may always go back.
func withUsualOOMScore(start func() error) error {
	oomScore.Lock()
	defer oomScore.Unlock()
	own, err := os.ReadFile(oomScoreFile)
	if err != nil || strings.TrimSpace(string(own)) == "0" || os.WriteFile(oomScoreFile, []byte("0"), 0) != nil {
		return start()
	}
	defer func() { _ = os.WriteFile(oomScoreFile, own, 0) }()
	return start()
}
