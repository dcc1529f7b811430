package bootstrapdata

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
)

// Format is the form of bootstrap data.
type Format string

// The formats.
const (
	// CloudConfig is a cloud-config document for cloud-init.
	CloudConfig Format = "cloud-config"
	// Script is a shell script.
	Script Format = "script"
	// Ignition is an Ignition config of version 3.
	Ignition Format = "ignition"
)

// ProviderFormat is the value of the key "format" of a bootstrap data Secret, by which infrastructure providers tell how to hand the data
// on. By the contract of Cluster API there are two; a script is cloud-init's, which runs what begins with "#!".
func (f Format) ProviderFormat() string {
	if f == Ignition {
		return "ignition"
	}
	return "cloud-config"
}

// sentinel is where providers look whether a machine was bootstrapped, by the contract of Cluster API. It is in /run, so that it tells of
// this boot only.
const sentinel = "/run/cluster-api/bootstrap-success.complete"

// sentinelScript ends the install script. The script ends at its first error, so this is reached only when the agent runs and the machine
// is registered.
const sentinelScript = `
# Cluster API's infrastructure providers look for this file.
umask 022
mkdir -p /run/cluster-api
echo success >` + sentinel + "\n"

// retryUnit is the unit that runs the script again at the next boot; it is there until the script has succeeded.
const retryUnit = "/etc/systemd/system/rancher-bootstrap.service"

// retryBegin and retryEnd are around the script where cloud-init runs it: that runs a command once, also if the machine is switched off or
// restarted while the script waits for the hub. The service is not of type oneshot, which systemd before 244 does not start again.
const (
	retryBegin = `if cat >` + retryUnit + ` <<'UNIT' && systemctl enable rancher-bootstrap.service; then
[Unit]
Description=Runs the bootstrap script that an earlier boot has not completed
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/bin/sh ` + scriptPath + `
Restart=on-failure
RestartSec=30s

[Install]
WantedBy=multi-user.target
UNIT
	sync -f /etc/systemd/system ` + scriptPath + ` 2>/dev/null || sync
fi
`
	retryEnd = `rm -f ` + retryUnit + ` /etc/systemd/system/multi-user.target.wants/rancher-bootstrap.service
`
)

// retried is a script that is run again at the next boot unless it has succeeded.
func retried(script []byte) []byte {
	shebang, body, _ := bytes.Cut(script, []byte("\n"))
	return slices.Concat(shebang, []byte("\n"+retryBegin), body, []byte(retryEnd))
}

// Make returns the bootstrap data that run script on a machine once, then do what userdata asks for. Where the user has to write something
// else, the error is an *InvalidError.
func Make(format Format, script []byte, userdata string) ([]byte, error) {
	full := append(append(make([]byte, 0, len(script)+len(sentinelScript)), script...), sentinelScript...)
	switch format {
	case CloudConfig:
		return cloudConfig(retried(full), userdata)
	case Ignition:
		return ignition(full, userdata)
	case Script:
		if strings.TrimSpace(userdata) != "" {
			return nil, invalid("a plain script takes no user data; leave it empty, or set spec.userdata.format to cloud-config")
		}
		return full, nil
	}
	return nil, &InvalidError{Field: "spec.userdata.format",
		Detail: fmt.Sprintf("%q is no format; write cloud-config, script or ignition", string(format))}
}

// Compress compresses a cloud-config as a whole, which cloud-init undoes. It is for providers that hand bytes on as they are: others take
// the document for a text, which would be damaged, or read it.
func Compress(cloudConfig []byte) ([]byte, error) { return gzipped(cloudConfig) }

// InvalidError tells what of an RKEBootstrap has to be written otherwise before there can be bootstrap data. It never quotes user data,
// which may hold passwords.
type InvalidError struct {
	// Field is the path of the field in the RKEBootstrap.
	Field string
	// Detail says what is wrong and what to write.
	Detail string
}

func (e *InvalidError) Error() string { return e.Field + ": " + e.Detail }

// invalid is an InvalidError about the user data.
func invalid(format string, args ...any) error {
	return &InvalidError{Field: "spec.userdata.inlineUserdata", Detail: fmt.Sprintf(format, args...)}
}
