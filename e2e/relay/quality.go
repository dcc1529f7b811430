package relay

import (
	"math"
	"time"
)

const (
	// chunkSize is how much is read at once; a chunk of this size has others behind it.
	chunkSize = 16 << 10
	// segmentSize is what one packet carries on an Ethernet.
	segmentSize = 1448
	// retransmitTimeout is the least time after which Linux sends again what nobody has acknowledged.
	retransmitTimeout = 200 * time.Millisecond
)

// delay is how long a chunk is under way if chance, 0 to 1, decides about it. Where a packet was lost in the middle of a stream its sender
// hears of that after a round trip, by what the packets behind it make the receiver say; the last packet of a message has none
// behind it, and is sent again after a time-out.
func (q Quality) delay(bytes int, chance float64) time.Duration {
	d := q.RoundTrip / 2
	segments := float64((bytes + segmentSize - 1) / segmentSize)
	if chance >= 1-math.Pow(1-q.Loss, segments) {
		return d
	}
	d += q.RoundTrip
	if bytes < chunkSize {
		d += retransmitTimeout
	}
	return d
}
