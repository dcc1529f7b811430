package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Connection is the connection info, which the hub returns when a machine registers.
type Connection struct {
	// KubeConfig is a kubeconfig, JSON or YAML, for the plan Secret.
	KubeConfig string `json:"kubeConfig"`
	// Namespace is that of the plan Secret.
	Namespace string `json:"namespace"`
	// SecretName is the name of the plan Secret.
	SecretName string `json:"secretName"`
	// PlanSigningKey is the public key of plan signatures, ed25519 in base64; empty if the hub does not sign plans.
	PlanSigningKey string `json:"planSigningKey,omitempty"`
}

// connectionFields are the JSON names of the fields of Connection.
var connectionFields = []string{"kubeConfig", "namespace", "secretName", "planSigningKey"}

// LoadConnection reads and validates a connection info file. Owner and mode must be as for Load.
func LoadConnection(path string) (Connection, error) {
	c, _, err := ReadConnection(path)
	return c, err
}

// ReadConnection is LoadConnection for callers that replace the file: it also returns the content.
func ReadConnection(path string) (Connection, []byte, error) {
	raw, err := ReadSecret(path)
	if err != nil {
		return Connection{}, nil, fmt.Errorf("reading connection info: %w", err)
	}
	var c Connection
	if err := decode(path, raw, &c); err != nil {
		return Connection{}, nil, fmt.Errorf("reading connection info: %w", err)
	}
	if err := c.Validate(); err != nil {
		return Connection{}, nil, fmt.Errorf("connection info %s: %w", path, err)
	}
	return c, raw, nil
}

// Encode returns the content of a connection info file. Unknown keys of previous, the current content or nil, are kept: a newer hub may
// have written them.
func (c Connection) Encode(previous []byte) ([]byte, error) {
	keys := map[string]any{}
	// As in decode, content after the first JSON value is ignored.
	if len(previous) > 0 && json.NewDecoder(bytes.NewReader(previous)).Decode(&keys) != nil {
		if err := yaml.Unmarshal(previous, &keys); err != nil {
			return nil, fmt.Errorf("decoding the previous connection info: %w", err)
		}
	}
	// Decoding ignores the case of keys, so a previous "Namespace" would compete with the new "namespace".
	maps.DeleteFunc(keys, func(key string, _ any) bool {
		return slices.ContainsFunc(connectionFields, func(field string) bool { return strings.EqualFold(key, field) })
	})
	keys["kubeConfig"], keys["namespace"], keys["secretName"] = c.KubeConfig, c.Namespace, c.SecretName
	if c.PlanSigningKey != "" {
		keys["planSigningKey"] = c.PlanSigningKey
	}
	raw, err := json.Marshal(keys)
	if err != nil {
		return nil, fmt.Errorf("encoding connection info: %w", err)
	}
	return append(raw, '\n'), nil
}

// Validate returns an error that lists every missing or invalid field.
func (c Connection) Validate() error {
	var errs []error
	for _, field := range []struct{ name, value string }{
		{"kubeConfig", c.KubeConfig}, {"namespace", c.Namespace}, {"secretName", c.SecretName},
	} {
		if field.value == "" {
			errs = append(errs, fmt.Errorf("%s: is required", field.name))
		}
	}
	if _, err := c.SigningKey(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
