package session

import "sync"

const (
	// smallChunk is what the first bytes of an empty buffer get, largeChunk what follows, and what a buffer gets that was filled before.
	smallChunk = 4 << 10
	largeChunk = 32 << 10
)

var (
	smallChunks = sync.Pool{New: func() any { return &chunk{data: make([]byte, smallChunk)} }}
	largeChunks = sync.Pool{New: func() any { return &chunk{data: make([]byte, largeChunk)} }}
)

// chunk is a part of a buffer: bytes r to w of data are yet to be read.
type chunk struct {
	next *chunk
	data []byte
	r, w int
}

func (c *chunk) free() {
	pool := &largeChunks
	if len(c.data) == smallChunk {
		pool = &smallChunks
	}
	c.next, c.r, c.w = nil, 0, 0
	pool.Put(c)
}

// buffer keeps the bytes of a stream that its consumer has not read. It has memory only while there are any. Its user holds a lock,
// except while it fills what room returned.
type buffer struct {
	head, tail *chunk
	// size is how many bytes wait, held how much memory they take.
	size, held int
	// filling says that room was given out and not yet committed.
	filling bool
	// bulk says that more arrives at once than a small chunk holds.
	bulk bool
}

// room returns where the next bytes go; commit says how many there are. It never is empty.
func (b *buffer) room() []byte {
	if b.tail == nil || b.tail.w == len(b.tail.data) {
		pool := &largeChunks
		if b.tail == nil && !b.bulk {
			pool = &smallChunks
		}
		c := pool.Get().(*chunk)
		b.held += len(c.data)
		if b.tail == nil {
			b.head = c
		} else {
			b.tail.next = c
		}
		b.tail = c
	}
	b.filling = true
	return b.tail.data[b.tail.w:]
}

func (b *buffer) commit(n int) {
	b.filling = false
	if n >= smallChunk {
		b.bulk = true
	} else if b.tail.w == 0 {
		b.bulk = false
	}
	b.tail.w += n
	b.size += n
	b.trim()
}

func (b *buffer) read(p []byte) int {
	read := 0
	for read < len(p) && b.size > 0 {
		n := copy(p[read:], b.head.data[b.head.r:b.head.w])
		b.head.r += n
		b.size -= n
		read += n
		b.trim()
	}
	return read
}

// take returns the first bytes that wait, of which there must be some. The caller frees the chunk.
func (b *buffer) take() *chunk {
	c := b.head
	if c == b.tail && b.filling {
		// What is being filled stays.
		pool := &largeChunks
		if c.w-c.r <= smallChunk {
			pool = &smallChunks
		}
		taken := pool.Get().(*chunk)
		taken.w = b.read(taken.data)
		return taken
	}
	b.size -= c.w - c.r
	b.held -= len(c.data)
	if b.head = c.next; b.head == nil {
		b.tail = nil
	}
	c.next = nil
	return c
}

// drop forgets what waits.
func (b *buffer) drop() {
	for c := b.head; c != nil; c = c.next {
		c.r = c.w
	}
	b.size = 0
	b.trim()
}

// trim frees the chunks at the head that have been read, but for the one that is being filled.
func (b *buffer) trim() {
	for b.head != nil && b.head.r == b.head.w {
		c := b.head
		if c == b.tail && b.filling {
			return
		}
		b.head = c.next
		if b.head == nil {
			b.tail = nil
		}
		b.held -= len(c.data)
		c.free()
	}
}
