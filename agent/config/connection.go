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

// Connection is the connection info that a machine gets when it registers.
type Connection struct {
	// KubeConfig is the text of a kubeconfig.
	KubeConfig string `json:"kubeConfig"`
	// Namespace and SecretName name the plan Secret.
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
	// PlanSigningKey is the public key, in base64, that the hub signs plans with. Hubs that sign none leave it out.
	PlanSigningKey string `json:"planSigningKey,omitempty"`
}

// connectionFields are the names of Connection's fields in a file.
var connectionFields = []string{"kubeConfig", "namespace", "secretName", "planSigningKey"}

// LoadConnection reads and validates a connection info file, under the rules of Load.
func LoadConnection(path string) (Connection, error) {
	c, _, err := ReadConnection(path)
	return c, err
}

// ReadConnection is LoadConnection for a caller that will replace the file: it also returns the content.
func ReadConnection(path string) (Connection, []byte, error) {
	raw, err := readPrivate(path)
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

// Encode is the content of a connection info file. Keys of former that this package does not know are kept, since a newer hub may have
// put them there; former may be empty.
func (c Connection) Encode(former []byte) ([]byte, error) {
	keys := map[string]any{}
	// As in decode, what follows the first value of JSON is left alone.
	if len(former) > 0 && json.NewDecoder(bytes.NewReader(former)).Decode(&keys) != nil {
		if err := yaml.Unmarshal(former, &keys); err != nil {
			return nil, fmt.Errorf("decoding the former connection info: %w", err)
		}
	}
	// Decoding takes a field's name in any case, so that a former "Namespace" would compete with the new "namespace".
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

// Validate names every field that is missing.
func (c Connection) Validate() error {
	var errs []error
	for _, field := range []struct{ name, value string }{
		{"kubeConfig", c.KubeConfig}, {"namespace", c.Namespace}, {"secretName", c.SecretName},
	} {
		if field.value == "" {
			errs = append(errs, fmt.Errorf("%s: is empty", field.name))
		}
	}
	if _, err := c.SigningKey(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
