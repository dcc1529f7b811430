// Package install holds the scripts that install the system-agent on a machine, as text. It runs nothing and reads no file at run time.
package install

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
	"sync"
)

//go:embed system-agent-install.sh
var skeleton string

//go:embed system-agent-uninstall.sh
var uninstallScript string

//go:embed parts
var parts embed.FS

// Names of the variables that the script may be delivered with.
const (
	// VarServer is the URL of the hub.
	VarServer = "CATTLE_SERVER"
	// VarCAChecksum is the hexadecimal SHA-256 of the response of <server>/cacerts.
	VarCAChecksum = "CATTLE_CA_CHECKSUM"
	// VarBinaryBaseURL is the URL below which the agent binaries are.
	VarBinaryBaseURL = "CATTLE_AGENT_BINARY_BASE_URL"
	// VarToken is the registration token, or the bootstrap token of one machine.
	VarToken = "CATTLE_TOKEN"
	// VarRetryCount is how often the script tries to reach the hub, with delays of up to 30 s.
	VarRetryCount = "CATTLE_AGENT_RETRY_COUNT"
	// VarAgentVarDir is the directory of the agent's data.
	VarAgentVarDir = "CATTLE_AGENT_VAR_DIR"
	// VarRoleNone is set if the hub knows the machine's roles.
	VarRoleNone = "CATTLE_ROLE_NONE"
)

// Var is a variable that the script sets at its beginning, unless its environment has set it: an operator can override what was delivered.
type Var struct {
	// Name is that of a shell variable.
	Name string
	// Value may be any text without NUL; an empty one is not set.
	Value string
}

var (
	include = regexp.MustCompile(`(?m)^@include ([a-z.-]+)$`)
	// hereDocument matches the start of a here-document, which ends with a line that is its word.
	hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?$`)
	varName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Script returns the install script with vars set at its beginning. It fails for invalid names of shell variables and for values with NUL.
func Script(vars ...Var) ([]byte, error) { return withVars(compose(), vars) }

// CompactScript is Script without comments and help, for user data, which some clouds limit to 16 KiB.
func CompactScript(vars ...Var) ([]byte, error) { return withVars(compactScript(), vars) }

// compactScript is the script without variables, which is the same for all machines.
var compactScript = sync.OnceValue(func() string { return compact(compose()) })

func withVars(script string, vars []Var) ([]byte, error) {
	shebang, body, _ := strings.Cut(script, "\n")
	var b strings.Builder
	b.WriteString(shebang + "\n")
	for _, v := range vars {
		if !varName.MatchString(v.Name) {
			return nil, fmt.Errorf("install script: invalid name of a shell variable %q", v.Name)
		}
		if strings.ContainsRune(v.Value, 0) {
			return nil, fmt.Errorf("install script: the value of %s contains NUL", v.Name)
		}
		if v.Value == "" {
			continue
		}
		fmt.Fprintf(&b, "[ -n \"${%s:-}\" ] || %s=%s\nexport %s\n", v.Name, v.Name, Quote(v.Value), v.Name)
	}
	b.WriteString(body)
	return []byte(b.String()), nil
}

// UninstallScript returns the script that removes what the install script has installed.
func UninstallScript() []byte { return []byte(uninstallScript) }

// Unit returns the systemd unit for an agent in binDir whose environment file is in unitDir.
func Unit(binDir, unitDir string) []byte {
	return []byte(strings.NewReplacer("@BIN_DIR@", binDir, "@UNIT_DIR@", unitDir).Replace(part("rancher-system-agent.service")))
}

// PackagedUnit returns the systemd unit for the agent of a deb or rpm package: its binary is /usr/bin/rancher-system-agent, the environment
// file is that of the install script, and the service does not start before the machine has a configuration.
func PackagedUnit() []byte {
	return []byte(strings.NewReplacer(
		"[Unit]\n", "[Unit]\nConditionPathExists=/etc/rancher/agent/config.yaml\n",
		"ExecStart=/usr/bin/system-agent ", "ExecStart=/usr/bin/rancher-system-agent ",
	).Replace(string(Unit("/usr/bin", "/etc/systemd/system"))))
}

// Quote quotes s as one word for a POSIX shell.
func Quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// compose replaces the @include lines of the skeleton by the parts.
func compose() string {
	return include.ReplaceAllStringFunc(skeleton, func(line string) string {
		return strings.TrimSuffix(part(include.FindStringSubmatch(line)[1]), "\n")
	})
}

// helpWord ends the here-document with the help text.
const helpWord = "USAGE"

// compact removes the help text, and the comments and indents of the script, but not those in its other here-documents. The script has no
// quoted text of several lines.
func compact(script string) string {
	var kept []string
	end := ""
	for i, line := range strings.Split(script, "\n") {
		switch start := hereDocument.FindStringSubmatch(line); {
		case line == end:
			end = ""
		case end == helpWord:
			continue
		case end != "":
		case i > 0 && strings.HasPrefix(strings.TrimSpace(line), "#"):
			continue
		case start != nil:
			end = start[1]
		}
		if end == "" {
			line = strings.TrimLeft(line, "\t")
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// part returns a part by name. A missing one leaves its name in the script, which the tests search for.
func part(name string) string {
	text, err := parts.ReadFile("parts/" + name)
	if err != nil {
		return "@missing " + name + "@"
	}
	return string(text)
}
