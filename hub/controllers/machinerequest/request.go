package machinerequest

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	rkev1 "github.com/drover-dev/drover/hub/api/rke/v1"
)

// machineRequest is what a machine sends when it registers.
type machineRequest struct {
	id                                        string
	etcd, controlPlane, worker                bool
	nodeName                                  string
	address, internalAddress, detectedAddress string
	labels                                    map[string]string
	taints                                    []corev1.Taint
	secretHash                                string
}

// parseRequest reads the headers in a machine request. The gateway has validated them; what could affect other machines is validated again.
// Errors are for the user who registers the machine.
func parseRequest(data []byte) (machineRequest, error) {
	var headers map[string][]string
	if err := json.Unmarshal(data, &headers); err != nil {
		return machineRequest{}, fmt.Errorf("decoding the request: %w", err)
	}
	header := func(name string) string { return strings.TrimSpace(strings.Join(headers[name], ",")) }
	role := func(name string) bool { return strings.EqualFold(header(name), "true") }
	request := machineRequest{
		id:              header(rkev1.HeaderID),
		etcd:            role(rkev1.HeaderRoleEtcd),
		controlPlane:    role(rkev1.HeaderRoleControlPlane),
		worker:          role(rkev1.HeaderRoleWorker),
		nodeName:        header(rkev1.HeaderNodeName),
		address:         header(rkev1.HeaderAddress),
		internalAddress: header(rkev1.HeaderInternalAddress),
		detectedAddress: header(rkev1.HeaderDetectedAddress),
		secretHash:      header(rkev1.HeaderMachineSecretHash),
	}
	if request.id == "" {
		return machineRequest{}, fmt.Errorf("the machine has no ID")
	}
	if !request.etcd && !request.controlPlane && !request.worker {
		return machineRequest{}, fmt.Errorf(
			"the machine has no role; run the command with --etcd, --controlplane or --worker, or several of them")
	}
	if request.nodeName != "" && len(validation.IsDNS1123Subdomain(request.nodeName)) > 0 {
		return machineRequest{}, fmt.Errorf("the node name %q is not a valid name", request.nodeName)
	}
	// It becomes the value of a label.
	if len(request.nodeName) > validation.LabelValueMaxLength {
		return machineRequest{}, fmt.Errorf("the node name %q has more than %d characters", request.nodeName, validation.LabelValueMaxLength)
	}
	var err error
	if request.labels, err = parseLabels(header(rkev1.HeaderLabels)); err != nil {
		return machineRequest{}, err
	}
	if request.taints, err = parseTaints(header(rkev1.HeaderTaints)); err != nil {
		return machineRequest{}, err
	}
	return request, nil
}

// parseLabels reads key=value pairs between commas.
func parseLabels(list string) (map[string]string, error) {
	labels := map[string]string{}
	for _, pair := range rkev1.SplitList(list) {
		key, value, _ := strings.Cut(pair, "=")
		for _, prefix := range rkev1.ReservedPrefixes {
			if strings.HasPrefix(key, prefix) {
				return nil, fmt.Errorf("the label %q is reserved for the hub", key)
			}
		}
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("the label %q is not valid: %s", pair, strings.Join(problems, "; "))
		}
		labels[key] = value
	}
	return labels, nil
}

var taintEffects = []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}

// parseTaints reads key=value:effect and key:effect between commas.
func parseTaints(list string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for _, item := range rkev1.SplitList(list) {
		pair, effect, _ := strings.Cut(item, ":")
		key, value, _ := strings.Cut(pair, "=")
		taint := corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)}
		if !slices.Contains(taintEffects, taint.Effect) {
			return nil, fmt.Errorf("the taint %q is not valid: it must end in :NoSchedule, :PreferNoSchedule or :NoExecute", item)
		}
		if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
			return nil, fmt.Errorf("the taint %q is not valid: %s", item, strings.Join(problems, "; "))
		}
		taints = append(taints, taint)
	}
	return taints, nil
}
