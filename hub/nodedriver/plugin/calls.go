package plugin

import (
	"context"
	"fmt"
	"time"
)

// maxFlags is the number of create flags that a driver may have; the published ones have at most some sixty.
const maxFlags = 400

// CreateFlags returns the driver's create flags.
func (d *Driver) CreateFlags(ctx context.Context) ([]Flag, error) {
	var wire []any
	if err := d.call(ctx, callTimeout, "GetCreateFlags", struct{}{}, &wire); err != nil {
		return nil, err
	}
	if len(wire) > maxFlags {
		return nil, &Error{Method: "GetCreateFlags", Message: fmt.Sprintf("the driver has %d flags, more than %d", len(wire), maxFlags)}
	}
	flags := make([]Flag, len(wire))
	for i := range wire {
		var err error
		if flags[i], err = flagOf(wire[i]); err != nil {
			return nil, &Error{Method: "GetCreateFlags", Message: err.Error()}
		}
	}
	return flags, nil
}

// SetConfig gives the driver its configuration, which is JSON.
func (d *Driver) SetConfig(ctx context.Context, config []byte) error {
	return d.call(ctx, callTimeout, "SetConfigRaw", config, nil)
}

// Config returns the driver's configuration, by which it finds its machine again.
func (d *Driver) Config(ctx context.Context) ([]byte, error) {
	var config []byte
	err := d.call(ctx, callTimeout, "GetConfigRaw", struct{}{}, &config)
	return config, err
}

// SetFlags gives the driver the values of its create flags: for each a string, []string, int or bool.
func (d *Driver) SetFlags(ctx context.Context, values map[string]any) error {
	var args any = &options{values}
	return d.call(ctx, callTimeout, "SetConfigFromFlags", &args, nil)
}

// PreCreateCheck asks whether a machine could be created.
func (d *Driver) PreCreateCheck(ctx context.Context, timeout time.Duration) error {
	return d.call(ctx, timeout, "PreCreateCheck", struct{}{}, nil)
}

// Create creates the machine.
func (d *Driver) Create(ctx context.Context, timeout time.Duration) error {
	return d.call(ctx, timeout, "Create", struct{}{}, nil)
}

// Remove deletes the machine.
func (d *Driver) Remove(ctx context.Context, timeout time.Duration) error {
	return d.call(ctx, timeout, "Remove", struct{}{}, nil)
}

// Running asks whether the machine runs.
func (d *Driver) Running(ctx context.Context, timeout time.Duration) (bool, error) {
	const running = 1
	var state int
	err := d.call(ctx, timeout, "GetState", struct{}{}, &state)
	return state == running, err
}

// SSH is how a machine is reached.
type SSH struct {
	Host, User, KeyPath string
	Port                int
}

// SSH returns how the machine is reached.
func (d *Driver) SSH(ctx context.Context, timeout time.Duration) (SSH, error) {
	var ssh SSH
	for _, c := range []struct {
		method string
		reply  any
	}{{"GetSSHHostname", &ssh.Host}, {"GetSSHPort", &ssh.Port}, {"GetSSHUsername", &ssh.User}, {"GetSSHKeyPath", &ssh.KeyPath}} {
		if err := d.call(ctx, timeout, c.method, struct{}{}, c.reply); err != nil {
			return SSH{}, err
		}
	}
	return ssh, nil
}
