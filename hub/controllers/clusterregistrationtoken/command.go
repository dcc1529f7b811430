package clusterregistrationtoken

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	provisioningv1 "github.com/drover-dev/drover/hub/api/provisioning/v1"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/server/settings"
	"github.com/drover-dev/drover/packaging/install"
)

var shellName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// download says how a node command gets the install script.
type download int

const (
	// plainDownload uses the machine's trusted CAs.
	plainDownload download = iota
	// insecureDownload does not verify the server; the script verifies what it does after that.
	insecureDownload
	// verifiedDownload trusts the hub's CA, which it verifies by its checksum.
	verifiedDownload
)

// commandEnv are the variables of a cluster in its node command. The directory of the agent's data is one of them, as in bootstrap data.
func commandEnv(spec *provisioningv1.ClusterSpec) []rkev1.EnvVar {
	if spec.RKEConfig == nil || spec.RKEConfig.DataDirectories.SystemAgent == "" {
		return spec.AgentEnvVars
	}
	dir := rkev1.EnvVar{Name: install.VarAgentVarDir, Value: string(spec.RKEConfig.DataDirectories.SystemAgent)}
	return append(slices.Clone(spec.AgentEnvVars), dir)
}

// nodeCommand is the command that registers a Linux machine, without roles. The token is a placeholder. It is empty without a server URL,
// or without a CA for a verified download.
func nodeCommand(s settings.Settings, env []rkev1.EnvVar, from download) string {
	if s.ServerURL == "" {
		return ""
	}
	if from == verifiedDownload {
		return verifiedNodeCommand(s, env)
	}
	words := append(quoteEnv(env), "curl")
	if from == insecureDownload {
		words = append(words, "--insecure")
	}
	words = append(words, "-fL", quoteIfNeeded(s.ServerURL+scriptPath), "|")
	words = append(words, sudoScript(s, env)...)
	words = append(words, "--token", managementv3.TokenPlaceholder)
	if sum := s.CAChecksum(); sum != "" {
		words = append(words, "--ca-checksum", sum)
	}
	return strings.Join(words, " ")
}

const scriptPath = "/system-agent-install.sh"

// verifiedNodeCommand runs nothing that is not verified: it ends with a failed download or a CA with another checksum. The token and the
// variables, of which a proxy may have a password, are on standard input, in front of the script, since sudo logs arguments and all users
// can list them.
func verifiedNodeCommand(s settings.Settings, env []rkev1.EnvVar) string {
	sum := s.CAChecksum()
	if sum == "" {
		return ""
	}
	curl := strings.Join(append(quoteEnv(env), "curl"), " ")
	steps := []string{
		`d=$(mktemp -d)`,
		fmt.Sprintf(`%s %s -o "$d/ca"`, curl, firstRequest(s)),
		fmt.Sprintf(`echo "%s  $d/ca" | sha256sum -c`, sum),
		fmt.Sprintf(`%s --cacert "$d/ca" -fsSL %s -o "$d/sh"`, curl, quoteIfNeeded(s.ServerURL+scriptPath)),
		fmt.Sprintf(`{ echo "export CATTLE_TOKEN=%s"; %scat "$d/sh"; } | %s --ca-checksum %s`,
			managementv3.TokenPlaceholder, printExports(env), strings.Join(sudoScript(s, nil), " "), sum),
	}
	return strings.Join(steps, " && ")
}

// firstRequest is what curl is asked for first, without verifying the server: the CA. Where a firewall drops what is sent to the hub, curl
// would wait for minutes and print nothing.
func firstRequest(s settings.Settings) string {
	return "--insecure --connect-timeout 15 -fsSL " + quoteIfNeeded(s.ServerURL+"/cacerts")
}

// sudoScript runs the script on standard input as root, with variables and the arguments of all commands.
func sudoScript(s settings.Settings, env []rkev1.EnvVar) []string {
	words := append([]string{"sudo"}, quoteEnv(env)...)
	return append(words, "sh", "-s", "-", "--server", quoteIfNeeded(s.ServerURL), "--label", "'cattle.io/os=linux'")
}

// quoteEnv formats variables as assignments in front of a shell command. Names that are no valid shell names are left out.
func quoteEnv(env []rkev1.EnvVar) []string {
	var words []string
	for _, variable := range env {
		if shellName.MatchString(variable.Name) {
			words = append(words, fmt.Sprintf("%s=%s", variable.Name, install.Quote(variable.Value)))
		}
	}
	return words
}

// printExports is a shell command that prints the beginning of a script, which exports variables; empty without any.
func printExports(env []rkev1.EnvVar) string {
	words := quoteEnv(env)
	if len(words) == 0 {
		return ""
	}
	return fmt.Sprintf(`printf '%%s\n' %s; `, install.Quote("export "+strings.Join(words, " ")))
}

var plainWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

func quoteIfNeeded(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return install.Quote(word)
}
