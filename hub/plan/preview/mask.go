package preview

import (
	"bytes"
	"cmp"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/drover-dev/drover/plans"
)

// Mask hides what may be a secret. It replaces values by marks that are equal for equal values, so that a change of a secret can be seen.
// Marks are keyed, so that nobody who sees them can find a value by guessing.
type Mask struct {
	key    []byte
	values []string
	paths  map[string]bool
}

// minSecret is the minimum length in bytes of known secrets that are searched for everywhere. Shorter ones occur in ordinary words.
const minSecret = 6

// NewMask returns a Mask that hides the given values wherever they are, and the whole content of the files with the given paths. The key
// must be random, and used for one report only.
func NewMask(key []byte, secrets [][]byte, paths []string) *Mask {
	m := &Mask{key: key, paths: map[string]bool{}}
	for _, secret := range secrets {
		value := strings.TrimSpace(string(secret))
		if len(value) < minSecret {
			continue
		}
		m.values = append(m.values, value, base64.StdEncoding.EncodeToString(secret))
	}
	// A secret that holds another is hidden whole.
	slices.SortFunc(m.values, func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
	for _, path := range paths {
		m.paths[path] = true
	}
	return m
}

func (m *Mask) mark(value []byte) string {
	sum := hmac.New(sha256.New, m.key)
	sum.Write(value)
	return fmt.Sprintf("(hidden, %d bytes, %s)", len(value), hex.EncodeToString(sum.Sum(nil))[:8])
}

// sensitive are the keys whose values are hidden. Names of Secrets and paths of files are hidden with them where a key says no more.
var sensitive = regexp.MustCompile(`(?i)token|passw|secret|credential|private|access-?key|api-?key|secret-?key|datastore-endpoint|vpn-auth|(^|[-_.])auth($|[-_.])|bearer`)

// harmless are the keys that look like secrets and are none.
var harmless = regexp.MustCompile(`(?i)^(secrets-encryption|.*-file|.*_file|.*file|secretName|.*SecretName|service-account-.*|token-.*-(days|ttl)|.*-ttl)$`)

func isSensitive(key string) bool { return sensitive.MatchString(key) && !harmless.MatchString(key) }

// user finds a name and a password in a URL.
var user = regexp.MustCompile(`://[^/@\s"']+@`)

// text hides known secrets, private keys and passwords of URLs in a text.
func (m *Mask) text(s string) string {
	for _, value := range m.values {
		s = strings.ReplaceAll(s, value, m.mark([]byte(value)))
	}
	if strings.Contains(s, "PRIVATE KEY-----") {
		return m.mark([]byte(s))
	}
	return user.ReplaceAllStringFunc(s, func(u string) string { return "://" + m.mark([]byte(u)) + "@" })
}

// Content is the content of a file as it may be shown: documents of YAML or JSON with their secrets hidden, and of all else how long it is.
func (m *Mask) Content(path string, content []byte) string {
	hidden := m.mark(content) + "\n"
	if m.paths[path] || strings.HasSuffix(path, ".key") {
		return hidden
	}
	for _, value := range m.values {
		if string(bytes.TrimSpace(content)) == value {
			return hidden
		}
	}
	if text, ok := m.documents(content); ok {
		return text
	}
	return hidden
}

// known are the environment variables that the hub itself sets and that hold no secret.
var known = regexp.MustCompile(`^(WINS_)?(RESTART_STAMP|DRAIN_HASH)(_WITHOUT_CA)?$|^INSTALL_[A-Z0-9]+_(EXEC|TYPE|SKIP_[A-Z]+)$|^[A-Z0-9]+_DATA_DIR$`)

// common hides the values of environment variables that a user has set, and the known secrets in the rest.
func (m *Mask) common(i plans.CommonInstruction) plans.CommonInstruction {
	i.Env = slices.Clone(i.Env)
	for n, pair := range i.Env {
		name, value, _ := strings.Cut(pair, "=")
		if !known.MatchString(name) {
			i.Env[n] = name + "=" + m.mark([]byte(value))
		}
	}
	i.Args = slices.Clone(i.Args)
	for n, arg := range i.Args {
		i.Args[n] = m.argument(arg)
	}
	if i.Script != "" {
		i.Script = m.mark([]byte(i.Script))
	}
	return i
}

// argument hides the value of an argument of the form name=value.
func (m *Mask) argument(arg string) string {
	name, value, found := strings.Cut(arg, "=")
	if found && value != "" && isSensitive(strings.TrimLeft(name, "-")) {
		return name + "=" + m.mark([]byte(value))
	}
	return m.text(arg)
}
