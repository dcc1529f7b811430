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

// download says how a node command gets the install script.
type download int

const (
	// plainDownload trusts the authorities that the machine trusts.
	plainDownload download = iota
	// insecureDownload trusts anybody who answers; only what the script does after that is checked.
	insecureDownload
	// verifiedDownload trusts the hub's own authority, which it knows by its checksum.
	verifiedDownload
)

// nodeCommand is what registers a Linux machine, roles to be added. The token is a placeholder. It is empty where there is no such
// command.
func nodeCommand(s settings.Settings, env []rkev1.EnvVar, from download) string {
	sum := s.CAChecksum()
	if s.ServerURL == "" || from == verifiedDownload && sum == "" {
		return ""
	}
	var words []string
	curl := append(quoteEnv(env), "curl")
	switch from {
	case insecureDownload:
		curl = append(curl, "--insecure")
	case verifiedDownload:
		words = append(words, "ca=$(mktemp)", "&&")
		words = append(words, curl...)
		words = append(words, "--insecure", "-fsSL", quoteIfNeeded(s.ServerURL+"/cacerts"), "-o", `"$ca"`, "&&")
		words = append(words, "echo", `"`+sum+`  $ca"`, "|", "sha256sum", "-c", "&&")
		curl = append(curl, "--cacert", `"$ca"`)
	}
	words = append(words, curl...)
	words = append(words, "-fL", quoteIfNeeded(s.ServerURL+"/system-agent-install.sh"), "|", "sudo")
	words = append(words, quoteEnv(env)...)
	words = append(words, "sh", "-s", "-", "--server", quoteIfNeeded(s.ServerURL), "--label", "'cattle.io/os=linux'", "--token", managementv3.TokenPlaceholder)
	if sum != "" {
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
