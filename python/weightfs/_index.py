# SPDX-License-Identifier: MIT
"""Basic indexing as of numpy, as a start, a count and a step for each dimension."""
import operator


class Selection:
    """What an index chooses of a shape: ``slices`` for each dimension, ``shape`` of the result."""

    def __init__(self, index, shape):
        given = index if isinstance(index, tuple) else (index,)
        self.is_scalar = not any(item is None or item is Ellipsis or isinstance(item, slice) for item in given)
        items = self.expand(given, len(shape))
        self.is_scalar = self.is_scalar and len(items) == len(given)
        self.slices, self.shape = [], []
        self.is_whole = True
        dimension = 0
        for item in items:
            if item is None:
                self.shape.append(1)
                continue
            size = shape[dimension]
            if isinstance(item, slice):
                start, stop, step = item.indices(size)
                count = len(range(start, stop, step))
                self.shape.append(count)
            else:
                start, count, step = self.place(item, dimension, size), 1, 1
            self.slices.append((start if count else 0, count, step if count > 1 else 1))
            self.is_whole = self.is_whole and self.slices[-1] == (0, size, 1)
            dimension += 1

    @staticmethod
    def place(item, dimension, size):
        if isinstance(item, bool):
            raise IndexError('masks are not read in place: write .numpy()[mask]')
        try:
            place = operator.index(item)
        except TypeError:
            raise IndexError('indices are integers, slices, ... and None; for lists and masks write .numpy()[%s]'
                             % type(item).__name__) from None
        if not -size <= place < size:
            raise IndexError('index %d is out of bounds for axis %d with size %d' % (place, dimension, size))
        return place + size if place < 0 else place

    @classmethod
    def expand(cls, items, rank):
        """Replaces ... and what is missing at the end by whole dimensions."""
        n_given = sum(item is not None and item is not Ellipsis for item in items)
        if n_given > rank:
            raise IndexError('too many indices: the tensor has %d dimension%s, %d were indexed' % (rank, '' if rank == 1 else 's', n_given))
        places = [place for place, item in enumerate(items) if item is Ellipsis]
        if len(places) > 1:
            raise IndexError("an index can have only a single ellipsis ('...')")
        place = places[0] if places else len(items)
        return items[:place] + (slice(None),) * (rank - n_given) + items[place + 1:]
