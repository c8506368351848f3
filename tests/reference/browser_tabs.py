"""A tab of a real Chromium, and all that goes wrong in it."""


class Tab:
    """A tab, and all that went wrong in it."""

    def __init__(self, browser, link, **options):
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(60_000)  # on a busy machine a process takes its time to begin
        self.page = self.context.new_page()
        self.wrong, self.asked = [], []
        self.page.on("console", lambda said: self.wrong.append(f"{said.type}: {said.text}"))
        self.page.on("response", lambda answer: None if answer.ok else self.wrong.append(answer.url))
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.wrong.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.asked.append(request.url))
        self.page.goto(link)
        self.page.wait_for_selector("#campaign-rows tr")

    def text(self, selector):
        return self.page.inner_text(selector)

    def waits_for(self, text, selector):
        self.page.wait_for_function(
            "([text, where]) => document.querySelector(where)?.textContent.includes(text)", arg=[text, selector]
        )

    def close(self):
        self.context.close()
