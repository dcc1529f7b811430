package v1

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
)

// maxNameLength is the length of a DNS label, the shortest limit that names of objects meet.
const maxNameLength = 63

// SafeConcat joins parts with "-" into a name of at most 63 characters. A longer name keeps its beginning and ends in some digits of the
// SHA-256 of the whole: six characters of suffix in all after 57 characters, or seven after 56 where the 57th is not a letter or digit, so
// that no two separators meet. Machines and adopted clusters know objects by these names: the rule must not change.
func SafeConcat(parts ...string) string {
	full := strings.Join(parts, "-")
	if len(full) <= maxNameLength {
		return full
	}
	sum := sha256.Sum256([]byte(full))
	digest := hex.EncodeToString(sum[:])
	if isAlphanumeric(full[56]) {
		return full[:57] + "-" + digest[:5]
	}
	return full[:56] + "-" + digest[:6]
}

func isAlphanumeric(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9'
}

// PlanSecretName names the plan Secret of an RKEBootstrap, and the ServiceAccount whose tokens the gateway takes for it.
func PlanSecretName(bootstrapName string) string {
	return SafeConcat(bootstrapName, "machine", "plan")
}

// MachineStateSecretName names the Secret in which the hub keeps what a node driver saves of an infrastructure machine.
func MachineStateSecretName(infraMachine string) string {
	return SafeConcat(infraMachine, "machine", "state")
}

// PlanTokenSecretName names the Secret that holds the token of the plan ServiceAccount.
func PlanTokenSecretName(bootstrapName string) string {
	return SafeConcat(PlanSecretName(bootstrapName), "token")
}

// BootstrapSecretName names the bootstrap data Secret of an RKEBootstrap.
func BootstrapSecretName(bootstrapName string) string {
	return SafeConcat(bootstrapName, "machine", "bootstrap")
}

// BootstrapServiceAccountName names the ServiceAccount with whose token a machine registers that an earlier hub made bootstrap data for.
func BootstrapServiceAccountName(bootstrapName string) string {
	return BootstrapSecretName(bootstrapName)
}

// ClusterStateSecretName names the Secret with the tokens by which nodes join the cluster of an RKEControlPlane.
func ClusterStateSecretName(controlPlaneName string) string {
	return SafeConcat(controlPlaneName, "rke", "state")
}

// TimelinePartName names the ConfigMap with a part of the timeline of a cluster. Part 0 has the cluster itself and says how many others
// there are.
func TimelinePartName(clusterName string, part int) string {
	if part == 0 {
		return SafeConcat(clusterName, "timeline")
	}
	return SafeConcat(clusterName, "timeline", strconv.Itoa(part))
}

// LimitName shortens a name to the limit that the annotation HostnameLengthLimitAnnotation has, a number from 10 to 63; without one, or
// with what is none, the name stays. A shortened name ends in six digits of the SHA-256 of the whole.
func LimitName(name, limit string) string {
	n, err := strconv.Atoi(limit)
	if err != nil || n < 10 || n >= len(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:n-7], "-.") + "-" + hex.EncodeToString(sum[:])[:6]
}
