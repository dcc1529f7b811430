package registration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/netip"
	"net/textproto"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubelet "k8s.io/kubelet/pkg/apis"

	managementv3 "github.com/drover-dev/drover/hub/api/management/v3"
	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
	"github.com/drover-dev/drover/hub/identity/tokens"
	"github.com/drover-dev/drover/hub/util/response"
)

const (
	headerPrefix = "X-Cattle-"

	// maxPairs bounds labels and taints each, maxAddresses the addresses of one header.
	maxPairs     = 64
	maxAddresses = 4
	maxIDLength  = 253
	// A machine's secret must be hard to guess.
	minSecretLength, maxSecretLength = 16, 512
)

// registration is what a machine says about itself, validated.
type registration struct {
	// ID is what the machine has generated to tell itself from all others.
	ID string
	// SecretHash is the hex SHA-256 of the secret by which the machine proves that the ID is its own; empty where it sent none.
	SecretHash string
	// ServerTokenHash is the hex SHA-256 of the token of a server of k3s or RKE2 that runs on the machine; empty where none is known.
	ServerTokenHash string
	// fields are the headers as the machine request holds them, without the secret.
	fields map[string][]string
}

// headerError is a 400 that names the header.
func headerError(header, format string, args ...any) error {
	name := headerPrefix + textproto.CanonicalMIMEHeaderKey(header)
	return response.Errorf(http.StatusBadRequest, "%s: %s", name, fmt.Sprintf(format, args...))
}

// parseRegistration validates the headers of a registration. Every error is a 400 that names the header.
func parseRegistration(headers http.Header) (*registration, error) {
	r := &registration{fields: map[string][]string{}}
	for _, field := range []struct {
		name  string
		list  bool
		check func(name, value string) error
	}{
		{name: rkev1.HeaderID, check: checkID},
		{name: rkev1.HeaderRoleEtcd, check: checkRole},
		{name: rkev1.HeaderRoleControlPlane, check: checkRole},
		{name: rkev1.HeaderRoleWorker, check: checkRole},
		{name: rkev1.HeaderNodeName, check: checkNodeName},
		{name: rkev1.HeaderAddress, list: true, check: checkAddresses},
		{name: rkev1.HeaderInternalAddress, list: true, check: checkAddresses},
		{name: rkev1.HeaderDetectedAddress, check: checkAddresses},
		{name: rkev1.HeaderLabels, list: true, check: checkLabels},
		{name: rkev1.HeaderTaints, list: true, check: checkTaints},
	} {
		value, err := headerValue(headers, field.name, field.list)
		if err != nil {
			return nil, err
		}
		if value == "" {
			continue
		}
		if err := field.check(field.name, value); err != nil {
			return nil, err
		}
		r.fields[field.name] = []string{value}
	}
	if r.ID = first(r.fields[rkev1.HeaderID]); r.ID == "" {
		return nil, headerError(rkev1.HeaderID, "it is missing")
	}
	secret, err := headerValue(headers, "machine-secret", false)
	if err != nil {
		return nil, err
	}
	if secret != "" {
		if len(secret) < minSecretLength || len(secret) > maxSecretLength {
			return nil, headerError("machine-secret", "it must have %d to %d characters", minSecretLength, maxSecretLength)
		}
		r.SecretHash = tokens.Hash(secret)
		r.fields[rkev1.HeaderMachineSecretHash] = []string{r.SecretHash}
	}
	if r.ServerTokenHash, err = headerValue(headers, serverTokenHash, false); err != nil {
		return nil, err
	}
	return r, nil
}

// role is a role of a machine, with the header that asks for it and the label of an RKEBootstrap that has it.
type role struct {
	header, label string
	role          managementv3.MachineRole
}

// rolesOf returns the roles for which has is true.
func rolesOf(has func(role) bool) []managementv3.MachineRole {
	var roles []managementv3.MachineRole
	for _, r := range []role{
		{rkev1.HeaderRoleEtcd, rkev1.EtcdRoleLabel, managementv3.EtcdRole},
		{rkev1.HeaderRoleControlPlane, rkev1.ControlPlaneRoleLabel, managementv3.ControlPlaneRole},
		{rkev1.HeaderRoleWorker, rkev1.WorkerRoleLabel, managementv3.WorkerRole},
	} {
		if has(r) {
			roles = append(roles, r.role)
		}
	}
	return roles
}

// roles are those that the machine asks for.
func (r *registration) roles() []managementv3.MachineRole {
	return rolesOf(func(role role) bool { return strings.EqualFold(first(r.fields[role.header]), "true") })
}

// encode is the data of the machine request.
func (r *registration) encode() ([]byte, error) {
	encoded, err := json.Marshal(r.fields)
	if err != nil {
		return nil, fmt.Errorf("encoding a machine request: %w", err)
	}
	return encoded, nil
}

// headerValue returns the value of X-Cattle-<name> without blanks around it. A list may come in several headers of the same name.
func headerValue(headers http.Header, name string, list bool) (string, error) {
	var values []string
	for _, value := range headers.Values(headerPrefix + name) {
		if value = strings.TrimSpace(value); value != "" {
			values = append(values, value)
		}
	}
	if len(values) > 1 && !list {
		return "", headerError(name, "it was sent %d times", len(values))
	}
	value := strings.Join(values, ",")
	for _, c := range value {
		if c < ' ' || c > '~' {
			return "", headerError(name, "it holds a character that is not printable ASCII")
		}
	}
	return value, nil
}

func checkID(name, value string) error {
	if len(value) > maxIDLength {
		return headerError(name, "it is longer than %d characters", maxIDLength)
	}
	if strings.ContainsFunc(value, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && !strings.ContainsRune("._:-", c)
	}) {
		return headerError(name, "it may hold only letters, digits and ._:-")
	}
	return nil
}

func checkRole(name, value string) error {
	if !strings.EqualFold(value, "true") && !strings.EqualFold(value, "false") {
		return headerError(name, "%q must be true or false", value)
	}
	return nil
}

// checkNodeName requires a valid name of a Node that is a valid label value too.
func checkNodeName(name, value string) error {
	if problems := validation.IsDNS1123Subdomain(value); len(problems) > 0 {
		return headerError(name, "%q is not a valid node name: %s", value, problems[0])
	}
	if len(value) > validation.LabelValueMaxLength {
		return headerError(name, "%q is longer than %d characters", value, validation.LabelValueMaxLength)
	}
	return nil
}

func checkAddresses(name, value string) error {
	addresses := strings.Split(value, ",")
	if len(addresses) > maxAddresses {
		return headerError(name, "it holds more than %d addresses", maxAddresses)
	}
	for _, address := range addresses {
		ip, err := netip.ParseAddr(strings.TrimSpace(address))
		if err != nil || ip.Zone() != "" {
			return headerError(name, "%q is not an IP address", address)
		}
		if ip.IsUnspecified() || ip.IsMulticast() {
			return headerError(name, "%q cannot be the address of a machine", address)
		}
	}
	return nil
}

func checkLabels(name, value string) error {
	pairs := strings.Split(value, ",")
	if len(pairs) > maxPairs {
		return headerError(name, "it holds more than %d labels", maxPairs)
	}
	for _, pair := range pairs {
		key, labelValue, ok := strings.Cut(strings.TrimSpace(pair), "=")
		if !ok {
			return headerError(name, "%q must look like key=value", pair)
		}
		if err := checkLabelKey(name, key); err != nil {
			return err
		}
		if problems := validation.IsValidLabelValue(labelValue); len(problems) > 0 {
			return headerError(name, "the value of the label %s: %s", key, problems[0])
		}
	}
	return nil
}

// checkLabelKey refuses labels that only the hub may set, and those with which a kubelet would not start.
func checkLabelKey(name, key string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return headerError(name, "%q is not a valid label key: %s", key, problems[0])
	}
	for _, prefix := range rkev1.ReservedPrefixes {
		if strings.HasPrefix(key, prefix) {
			return headerError(name, "the label %s is not allowed: %s is reserved for the hub", key, strings.TrimSuffix(prefix, "/"))
		}
	}
	domain, _, ok := strings.Cut(key, "/")
	if !ok || kubelet.IsKubeletLabel(key) {
		return nil
	}
	for _, reserved := range []string{"kubernetes.io", "k8s.io"} {
		if domain == reserved || strings.HasSuffix(domain, "."+reserved) {
			return headerError(name, "the label %s is not allowed: a node may not label itself under %s", key, reserved)
		}
	}
	return nil
}

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// checkTaints requires key=value:effect or key:effect.
func checkTaints(name, value string) error {
	taints := strings.Split(value, ",")
	if len(taints) > maxPairs {
		return headerError(name, "it holds more than %d taints", maxPairs)
	}
	for _, taint := range taints {
		pair, effect, ok := strings.Cut(strings.TrimSpace(taint), ":")
		if !ok || !slices.Contains(taintEffects, corev1.TaintEffect(effect)) {
			return headerError(name, "%q must look like key=value:effect, with the effect NoSchedule, PreferNoSchedule or NoExecute", taint)
		}
		key, taintValue, _ := strings.Cut(pair, "=")
		if problems := validation.IsQualifiedName(key); len(problems) > 0 {
			return headerError(name, "%q is not a valid taint key: %s", key, problems[0])
		}
		if problems := validation.IsValidLabelValue(taintValue); len(problems) > 0 {
			return headerError(name, "the value of the taint %s: %s", key, problems[0])
		}
	}
	return nil
}

func first(values []string) string {
	if len(values) == 0 {
		return ""
	}
	return values[0]
}
