package config

import (
	"errors"
	"fmt"
)

// Connection is the connection info that a machine gets when it registers.
type Connection struct {
	// KubeConfig is the text of a kubeconfig.
	KubeConfig string `json:"kubeConfig"`
	// Namespace and SecretName name the plan Secret.
	Namespace  string `json:"namespace"`
	SecretName string `json:"secretName"`
}

// LoadConnection reads and validates a connection info file, under the rules of Load.
func LoadConnection(path string) (Connection, error) {
	var c Connection
	if err := decodeFile(path, &c); err != nil {
		return Connection{}, fmt.Errorf("reading connection info: %w", err)
	}
	if err := c.Validate(); err != nil {
		return Connection{}, fmt.Errorf("connection info %s: %w", path, err)
	}
	return c, nil
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
	return errors.Join(errs...)
}
