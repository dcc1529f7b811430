package nodedriver

import (
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/drover-dev/drover/hub/nodedriver/sandbox"
	"github.com/drover-dev/drover/hub/nodedriver/schema"
)

// filePath is where the content of a field is, for the driver.
func filePath(field schema.Field) string { return sandbox.Home + "/files/" + field.Flag.Name }

// writeFiles writes the contents of fields that are files to where the values of their flags lead. A driver may read them again whenever it
// runs, also when it removes the machine. Drivers that are given the private key of a pair want the public one beside it, as ssh-keygen
// writes it.
func (m *Machine) writeFiles(s *session) error {
	for _, field := range s.files() {
		content := m.content(field)
		if content == "" {
			continue
		}
		if err := s.box.WriteFile(filePath(field), []byte(content)); err != nil {
			return err
		}
		key, err := ssh.ParsePrivateKey([]byte(content))
		if err != nil {
			continue // no key, or one with a passphrase
		}
		if err := s.box.WriteFile(filePath(field)+".pub", ssh.MarshalAuthorizedKey(key.PublicKey())); err != nil {
			return err
		}
	}
	return nil
}

// content is that of a file; empty if neither the machine nor the credential has any. Forms drop the end of the last line, without which
// OpenSSH refuses a key.
func (m *Machine) content(field schema.Field) string {
	content, _ := m.Spec[field.Name].(string)
	if content == "" {
		given, _ := lookup(field, m.Credential)
		content, _ = given.(string)
	}
	if content = strings.TrimRight(content, "\n"); content == "" {
		return ""
	}
	return content + "\n"
}

// files are the fields that take the content of a file, but not the one with user data, to which the bootstrap script is added.
func (s *session) files() []schema.Field {
	var out []schema.Field
	byUserData := userDataField(s.fields)
	for _, field := range s.fields {
		if field.File && (byUserData == nil || field.Name != byUserData.Name) {
			out = append(out, field)
		}
	}
	return out
}

// flagValues are the values of the driver's flags: the paths of files, and the user data that the user wrote.
func (m *Machine) flagValues(s *session) (map[string]any, error) {
	given, err := values(s.fields, m.Spec, m.Credential)
	if err != nil {
		return nil, err
	}
	for _, field := range s.files() {
		if m.content(field) != "" {
			given[field.Flag.Name] = filePath(field)
		}
	}
	return given, nil
}
