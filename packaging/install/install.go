// Package install holds the scripts that put the system-agent on a machine, as text. It composes and quotes; it runs nothing,
// reads no file at run time and knows no hub.
package install

import (
	"embed"
	"fmt"
	"regexp"
	"strings"
)

//go:embed system-agent-install.sh
var skeleton string

//go:embed system-agent-uninstall.sh
var uninstallScript string

//go:embed parts
var parts embed.FS

// The variables that whoever hands out the script may fill in beforehand.
const (
	// VarServer is the URL of the hub.
	VarServer = "CATTLE_SERVER"
	// VarCAChecksum is the SHA-256 of what <server>/cacerts answers.
	VarCAChecksum = "CATTLE_CA_CHECKSUM"
	// VarBinaryBaseURL is where the agent binaries are.
	VarBinaryBaseURL = "CATTLE_AGENT_BINARY_BASE_URL"
	// VarToken is the registration token, or the hashed bootstrap token of one machine.
	VarToken = "CATTLE_TOKEN"
	// VarRetryCount is how often the script tries to reach the hub, with up to 30 s in between.
	VarRetryCount = "CATTLE_AGENT_RETRY_COUNT"
	// VarRoleNone tells that the hub knows the machine's roles.
	VarRoleNone = "CATTLE_ROLE_NONE"
)

// Var is a variable that the script starts with. One that its caller has set already wins, so that an operator can always pin
// something else than what was handed out.
type Var struct {
	Name  string
	Value string
}

var (
	include = regexp.MustCompile(`(?m)^@include ([a-z.-]+)$`)
	// hereDocument finds where a text begins that ends with the word alone on a line.
	hereDocument = regexp.MustCompile(`<<'?([A-Z]+)'?$`)
	varName      = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// Script returns the install script with vars set at its beginning. It fails for a name that is no shell variable and for a value
// with a NUL, which no shell can hold. Variables without a value are left out.
func Script(vars ...Var) ([]byte, error) { return withVars(compose(), vars) }

// CompactScript is Script without comments, for places where each byte counts: clouds take as little as 16 KiB of user data.
func CompactScript(vars ...Var) ([]byte, error) { return withVars(compact(compose()), vars) }

func withVars(script string, vars []Var) ([]byte, error) {
	shebang, body, _ := strings.Cut(script, "\n")
	var b strings.Builder
	b.WriteString(shebang + "\n")
	for _, v := range vars {
		if !varName.MatchString(v.Name) {
			return nil, fmt.Errorf("setting a variable of the install script: %q is not a name of a shell variable", v.Name)
		}
		if strings.ContainsRune(v.Value, 0) {
			return nil, fmt.Errorf("setting %s of the install script: the value holds a NUL", v.Name)
		}
		if v.Value == "" {
			continue
		}
		fmt.Fprintf(&b, "[ -n \"${%s:-}\" ] || %s=%s\nexport %s\n", v.Name, v.Name, Quote(v.Value), v.Name)
	}
	b.WriteString(body)
	return []byte(b.String()), nil
}

// UninstallScript returns the script that removes what Script's has installed.
func UninstallScript() []byte { return []byte(uninstallScript) }

// Unit returns the systemd unit for an agent in binDir whose environment file is in unitDir.
func Unit(binDir, unitDir string) []byte {
	return []byte(strings.NewReplacer("@BIN_DIR@", binDir, "@UNIT_DIR@", unitDir).Replace(part("rancher-system-agent.service")))
}

// Quote makes one word of s for a POSIX shell.
func Quote(s string) string {
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// compose puts the parts into the skeleton.
func compose() string {
	return include.ReplaceAllStringFunc(skeleton, func(line string) string {
		return strings.TrimSuffix(part(include.FindStringSubmatch(line)[1]), "\n")
	})
}

// compact leaves the lines out that are comments of the script, and keeps those of the files in it. The script has no text that goes over
// several lines in quotes.
func compact(script string) string {
	var kept []string
	end := ""
	for i, line := range strings.Split(script, "\n") {
		switch start := hereDocument.FindStringSubmatch(line); {
		case end != "":
			if line == end {
				end = ""
			}
		case i > 0 && strings.HasPrefix(strings.TrimSpace(line), "#"):
			continue
		case start != nil:
			end = start[1]
		}
		kept = append(kept, line)
	}
	return strings.Join(kept, "\n")
}

// part returns a part by name. One that does not exist leaves its name in the script, where the tests look for it.
func part(name string) string {
	text, err := parts.ReadFile("parts/" + name)
	if err != nil {
		return "@missing " + name + "@"
	}
	return string(text)
}
