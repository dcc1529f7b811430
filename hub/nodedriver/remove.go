package nodedriver

import (
	"context"
	"encoding/json"
	"errors"
	"path"
	"regexp"
	"strings"

	"github.com/drover-dev/drover/hub/nodedriver/plugin"
)

// Remove removes a machine by its state. A machine without a state, or that its cloud does not know (isGone), is removed.
func (r *Runner) Remove(ctx context.Context, m *Machine) (log string, err error) {
	if m.State.Config() == nil {
		return "", nil
	}
	output := plugin.NewLog(m.secrets()...)
	config, err := r.withCredential(ctx, m, output)
	if err == nil {
		err = r.remove(ctx, m, config, output)
	}
	return output.String(), redact(output, err)
}

func (r *Runner) remove(ctx context.Context, m *Machine, config []byte, log *plugin.Log) (err error) {
	s, err := r.open(ctx, m, nil, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	if err := s.SetConfig(ctx, withoutNames(m.Driver, config)); err != nil {
		return err
	}
	err = s.removeMachine(ctx, m)
	var answer *plugin.Error
	// What a driver has written before it broke off says nothing.
	if !errors.As(err, &answer) || !answer.Answered || !m.State.isGone(answer.Message) {
		return err
	}
	// exoscale deletes its key before the machine: when that has failed, the next removal does not find the key. Of a cloud that says the same
	// of a machine that the credential may not use, it is gone only if its state can be seen, as that of one that was terminated.
	running, stateErr := s.Running(ctx, stateTimeout)
	if stateErr == nil && running || stateErr != nil && orNotLetIn.MatchString(answer.Message) {
		return err
	}
	return nil
}

// removeMachine has the driver remove the machine. That of exoscale deletes the key pair first, and ends where there is none: when it could
// not delete the machine after that, it never would. So the machine is removed once more, without a key pair.
func (s *session) removeMachine(ctx context.Context, m *Machine) error {
	err := s.Remove(ctx, RemoveTimeout)
	var answer *plugin.Error
	var known struct{ KeyPair string }
	if !errors.As(err, &answer) || !answer.Answered || !m.State.isGone(answer.Message) ||
		json.Unmarshal(m.State.Config(), &known) != nil || known.KeyPair == "" {
		return err
	}
	if err := s.SetConfig(ctx, []byte(`{"KeyPair":""}`)); err != nil { // the rest stays
		return err
	}
	return s.Remove(ctx, RemoveTimeout)
}

var (
	// notLetIn matches the error of a cloud that knows no account of the credential any more.
	notLetIn = regexp.MustCompile(`(?i)oauth2:|invalid_grant|invalid_client|unauthorized|AADSTS|adal:|authenticat`)
	// orNotLetIn matches the error of oci, which is the same where there is no machine and where the credential may not use it.
	orNotLetIn = regexp.MustCompile(`(?i)NotAuthorizedOrNotFound|Authorization failed or requested resource not found`)
	// neverCreated matches what the drivers digitalocean and oci answer of a machine that the cloud has refused to create, such as for a
	// quota: it has no ID.
	neverCreated = regexp.MustCompile(
		`(?i)dropletID is invalid because cannot be less than 1|value cannot be empty for field InstanceId in path`)
	// notFound matches the answer of a cloud that does not know something; that of nutanix is ENTITY_NOT_FOUND.
	notFound = regexp.MustCompile(`(?i)not found|ENTITY_NOT_FOUND`)
	// namedNotFound finds the names of what was not found.
	namedNotFound = regexp.MustCompile(`(?i)['"]([^'"]+)['"]:? (?:was |is )?not found`)
	// ofInstance finds the error of the machine itself among those that the driver otc lists, one a line, of all that it deletes.
	ofInstance = regexp.MustCompile(`(?m)^\s*\* (failed to (?:delete instance|wait for instance status after deletion): .*)$`)
	// ownField matches the fields of a driver's configuration by which the machine is known at its cloud.
	ownField = regexp.MustCompile(`(?i)^(machine|instance|server|droplet|device|linode|vm)?_?(id|uuid|name)$`)
)

// isGone reports whether an answer says that the cloud does not know the machine. Drivers have no other way to say it than the text of an
// error. That tells as well of other things that were not found, while the machine still runs: of the account of the credential, or of the
// network, the datacenter or the resource pool of the machine, for which the driver of vSphere looks before it removes one.
func (s *State) isGone(answer string) bool {
	if own := ofInstance.FindStringSubmatch(answer); own != nil {
		answer = own[1]
	}
	if neverCreated.MatchString(answer) {
		return true
	}
	if !notFound.MatchString(answer) || notLetIn.MatchString(strings.ReplaceAll(answer, s.Name, "")) {
		return false
	}
	own := s.ownNames()
	for _, named := range namedNotFound.FindAllStringSubmatch(answer, -1) {
		if !own[path.Base(strings.TrimSuffix(named[1], `\`))] {
			return false
		}
	}
	return true
}

// ownNames are the names and IDs of the machine at its cloud.
func (s *State) ownNames() map[string]bool {
	own := map[string]bool{s.Name: true}
	var config map[string]json.RawMessage
	if json.Unmarshal(s.Config(), &config) == nil {
		for field, value := range config {
			if ownField.MatchString(field) {
				own[strings.Trim(string(value), `"`)] = true
			}
		}
	}
	return own
}

// withCredential returns the configuration of a machine with the credential of today: what the driver makes of the credential now takes the
// place of what it made of it when the machine was created. Where it makes nothing of it, the saved configuration is used.
func (r *Runner) withCredential(ctx context.Context, m *Machine, log *plugin.Log) (_ []byte, err error) {
	saved := m.State.Config()
	if len(m.Credential) == 0 {
		return saved, nil
	}
	fresh := *m
	fresh.State = nil
	s, err := r.open(ctx, &fresh, m.Files, log)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.end()) }()
	fresh.Spec = fitting(s.fields, m.Spec)
	given, err := fresh.flagValues(s)
	if err != nil {
		return nil, err
	}
	fromFile(s.fields, given, "")
	var before, now map[string]any
	if fresh.configure(ctx, s, given) != nil {
		return saved, nil
	}
	raw, err := s.Config(ctx)
	if err != nil || json.Unmarshal(raw, &now) != nil || json.Unmarshal(saved, &before) != nil {
		return saved, nil //nolint:nilerr
	}
	for field, value := range now {
		if path, ok := before[field].(string); ok && strings.HasPrefix(path, m.filePath("")) {
			continue // the content of that file may be in the credential
		}
		for _, secret := range m.Credential {
			if value == any(secret) && secret != "" {
				before[field] = value
			}
		}
	}
	return json.Marshal(before)
}
