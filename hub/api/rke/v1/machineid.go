package v1

import (
	"crypto/sha256"
	"encoding/hex"
)

// MachineRequestName names the machine request, and then the Machine, RKEBootstrap and CustomMachine, of the machine with an ID.
func MachineRequestName(machineID string) string {
	return MachineRequestPrefix + hexSum(machineID)[:12]
}

// MachineIDLabelValue is what MachineIDLabel holds for the machine with an ID: not the ID, which would let others register as that machine.
func MachineIDLabelValue(machineID string) string {
	return hexSum(machineID)[:maxNameLength]
}

func hexSum(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}
