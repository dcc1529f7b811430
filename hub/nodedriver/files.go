package nodedriver

import (
	"maps"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
)

// filePath is where the content of a field is, for the driver: among the files of the machine, which its state keeps. A driver may read it
// again when it removes the machine, and machine and credential may have changed by then.
func (m *Machine) filePath(field string) string { return path.Join(Dir(m.Name), fieldPrefix+field) }

// fieldPrefix begins the names of these files.
const fieldPrefix = "field-"

// writeFiles writes the contents of fields that are files. Drivers that are given the private key of a pair want the public one beside it,
// as ssh-keygen writes it.
func (m *Machine) writeFiles(box *sandbox.Sandbox) error {
	for _, field := range slices.Sorted(maps.Values(m.Files)) {
		content := m.content(field)
		if content == "" {
			continue
		}
		if err := box.WriteFile(m.filePath(field), []byte(content)); err != nil {
			return err
		}
		key, err := ssh.ParsePrivateKey([]byte(content))
		if err != nil {
			continue // no key, or one with a passphrase
		}
		if err := box.WriteFile(m.filePath(field)+".pub", ssh.MarshalAuthorizedKey(key.PublicKey())); err != nil {
			return err
		}
	}
	return nil
}

// content is that of a field; empty if neither the machine nor the credential has any. Forms drop the end of the last line, without which
// OpenSSH refuses a key.
func (m *Machine) content(field string) string {
	content, _ := m.Spec[field].(string)
	if content == "" {
		content = m.Credential[field]
	}
	if content = strings.TrimRight(content, "\n"); content == "" {
		return ""
	}
	return content + "\n"
}

// flagValues are the values of the driver's flags: the paths of files, and of the field with user data, to which the bootstrap script is
// added, what the user wrote.
func (m *Machine) flagValues(s *session) (map[string]any, error) {
	given, err := values(s.fields, m.Spec, m.Credential)
	if err != nil {
		return nil, err
	}
	byPath, byText := userDataFields(s.fields)
	for i, field := range s.fields {
		if !field.File || byPath == &s.fields[i] || byText == &s.fields[i] {
			continue
		}
		given[field.Flag.Name] = field.Flag.Default
		if m.content(field.Name) != "" {
			given[field.Flag.Name] = m.filePath(field.Name)
		}
	}
	return given, nil
}
