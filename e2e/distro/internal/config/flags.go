package config

import (
	"fmt"
	"strings"

	"github.com/drover-dev/drover/e2e/distro/internal/flavour"
)

// environment maps variables to the keys they stand for.
var environment = map[string]string{
	flavour.Variable("TOKEN"):             "token",
	flavour.Variable("TOKEN_FILE"):        "token-file",
	flavour.Variable("AGENT_TOKEN"):       "agent-token",
	flavour.Variable("AGENT_TOKEN_FILE"):  "agent-token-file",
	flavour.Variable("URL"):               "server",
	flavour.Variable("DATA_DIR"):          "data-dir",
	flavour.Variable("NODE_NAME"):         "node-name",
	flavour.Variable("CLUSTER_INIT"):      "cluster-init",
	flavour.Variable("RESOLV_CONF"):       "resolv-conf",
	flavour.Variable("KUBECONFIG_OUTPUT"): "write-kubeconfig",
	flavour.Variable("KUBECONFIG_MODE"):   "write-kubeconfig-mode",
	"AWS_ACCESS_KEY_ID":                   "etcd-s3-access-key",
	"AWS_SECRET_ACCESS_KEY":               "etcd-s3-secret-key",
	"AWS_SESSION_TOKEN":                   "etcd-s3-session-token",
}

func readEnvironment(role Role, getenv func(string) string) (values, error) {
	out := values{}
	for variable, name := range environment {
		value := getenv(variable)
		if value == "" || keys[name].server && role == Agent {
			continue
		}
		texts, err := check(name, []string{value}, role)
		if err != nil {
			return nil, fmt.Errorf("environment variable %s: %w", variable, err)
		}
		out[name] = texts
	}
	return out, nil
}

// readFlags reads a command line: --key value, --key=value, and --key alone for what is true or false.
func readFlags(role Role, args []string) (out values, file string, err error) {
	out = values{}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		name, value, has := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if short, ok := shorts[name]; ok {
			name = short
		}
		if !strings.HasPrefix(arg, "-") {
			return nil, "", fmt.Errorf("unexpected argument %q", arg)
		}
		k, known := keys[name]
		switch {
		case has:
		case known && k.kind == flag:
			value = "true"
		case len(args) == 0:
			return nil, "", fmt.Errorf("--%s: needs a value", name)
		default:
			value, args = args[0], args[1:]
		}
		if name == "config" {
			file = value
			continue
		}
		texts, err := check(name, []string{value}, role)
		if err != nil {
			return nil, "", fmt.Errorf("--%s: %w", name, err)
		}
		if k.kind == list || k.kind == csv {
			texts = append(out[name], texts...)
		}
		out[name] = texts
	}
	return out, file, nil
}

var shorts = map[string]string{"c": "config", "d": "data-dir", "t": "token", "s": "server", "o": "write-kubeconfig"}
