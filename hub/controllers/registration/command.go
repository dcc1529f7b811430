package registration

import (
	"fmt"
	"regexp"
	"strings"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/settings"
	"github.com/drover-dev/drover/packaging/install"
)

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// nodeCommand is what registers a Linux machine, roles to be added. The token is a placeholder. An insecure command downloads the script
// from a hub whose certificate the machine does not know; the script then checks it by its checksum.
func nodeCommand(s settings.Settings, env []rkev1.EnvVar, insecure bool) string {
	if s.ServerURL == "" {
		return ""
	}
	words := quoteEnv(env)
	words = append(words, "curl")
	if insecure {
		words = append(words, "--insecure")
	}
	words = append(words, "-fL", quoteIfNeeded(s.ServerURL+"/system-agent-install.sh"), "|", "sudo")
	words = append(words, quoteEnv(env)...)
	words = append(words, "sh", "-s", "-", "--server", quoteIfNeeded(s.ServerURL), "--label", "'cattle.io/os=linux'", "--token", managementv3.TokenPlaceholder)
	if sum := s.CAChecksum(); sum != "" {
		words = append(words, "--ca-checksum", sum)
	}
	return strings.Join(words, " ")
}

// quoteEnv spells variables as a shell takes them before a command. A name that no shell can hold is left out.
func quoteEnv(env []rkev1.EnvVar) []string {
	var words []string
	for _, variable := range env {
		if shellName.MatchString(variable.Name) {
			words = append(words, fmt.Sprintf("%s=%s", variable.Name, install.Quote(variable.Value)))
		}
	}
	return words
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

func quoteIfNeeded(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return install.Quote(word)
}
