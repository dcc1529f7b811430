package egress

import "sync/atomic"

const (
	// elementCost is for each element of an array and each field of an object. Most take less as a Go value, some more: an empty condition of
	// a Node 112 bytes, an empty container of a Pod 700.
	elementCost = 64
	// itemCost is for each item of a list. An empty Node takes 800 bytes, a Pod 1,300.
	itemCost = 2 << 10
	// itemDepth is how deep in the JSON of a list its items are.
	itemDepth = 2
)

// jsonScanner estimates what JSON costs in memory, in bytes, once it is decoded: its length, and something for each value. It does not
// check that it is JSON; decoders do that before they allocate anything.
type jsonScanner struct {
	// limit is for each value at the top, or, where total is set, for that, to which all of the body is added.
	limit int64
	total *atomic.Int64

	// cost is that of the present value, or what was not added to total yet.
	cost              int64
	depth             int
	inString, escaped bool
}

func (s *jsonScanner) scan(data []byte) (ended int, ok bool) {
	for _, c := range data {
		s.cost++
		switch {
		case s.escaped:
			s.escaped = false
		case s.inString:
			s.escaped, s.inString = c == '\\', c != '"'
		case s.delimiter(c) && s.total == nil:
			if s.cost > s.limit {
				return ended, false
			}
			ended++
			s.cost = 0
		}
	}
	if s.total == nil {
		return ended, s.cost <= s.limit
	}
	total := s.total.Add(s.cost)
	s.cost = 0
	return 0, total <= s.limit
}

// delimiter looks at a byte outside of strings, and reports whether a value at the top has ended with it.
func (s *jsonScanner) delimiter(c byte) bool {
	switch c {
	case '"':
		s.inString = true
	case ',', '{', '[':
		s.cost += elementCost
		if s.depth == itemDepth {
			s.cost += itemCost
		}
		if c != ',' {
			s.depth++
		}
	case '}', ']':
		s.depth--
		return s.depth == 0
	}
	return false
}

// frameScanner follows the events of a watch in protobuf: each begins with its length in four bytes.
type frameScanner struct {
	// length is what has been read of a length, of which digits bytes; left is what is missing of a frame.
	length uint32
	digits int
	left   int
}

func (s *frameScanner) scan(data []byte) (ended int, ok bool) {
	for len(data) > 0 {
		if s.left > 0 {
			n := min(s.left, len(data))
			s.left, data = s.left-n, data[n:]
			continue
		}
		s.length, data = s.length<<8|uint32(data[0]), data[1:]
		if s.digits++; s.digits < 4 {
			continue
		}
		if s.length > maxFrame {
			return ended, false
		}
		s.left, s.length, s.digits = int(s.length), 0, 0
		ended++
	}
	return ended, true
}

// byteScanner limits only the length.
type byteScanner struct{ left int }

func (s *byteScanner) scan(data []byte) (ended int, ok bool) {
	s.left -= len(data)
	return 0, s.left >= 0
}
